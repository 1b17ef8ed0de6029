"""Laws of MoDE: the output of parts next to a frozen backbone, and the weights of their gates.

Shapes: K blocks, P parts, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from engine.config import Family
from engine.inference.mixing import Mixing
from engine.methods.mode.config import Init, ModeConfig
from engine.methods.mode.model import ModeModel
from engine.selfcheck.law import LawFinding, gap
from engine.selfcheck.test_bed import FAMILIES, PARTS, TestBed, plain_gate

STARTS: tuple[tuple[Init, int], ...] = (("copy", 1), ("random", 1), ("copy", 2))  # the last is a copy of its block


def parts_of_one_backbone(bed: TestBed) -> Iterator[LawFinding]:
    """L12, in every family; the controls start with equal weights, and leave the other part on."""
    for family in FAMILIES:
        backbone_TV = _logits(bed, bed.mode_model((), family, num_blocks=1), ())
        for init, num_layers in STARTS:
            closed_TV = _untrained_logits(bed, family, ModeConfig(1, num_layers, init))
            open_TV = _untrained_logits(bed, family, ModeConfig(1, 1, "random", "even"))
            yield LawFinding(gap(closed_TV, backbone_TV), gap(open_TV, backbone_TV))
        together = bed.mode_model(PARTS, family)
        both_TV = _logits(bed, together, PARTS)
        for part in PARTS:
            single_TV = _logits(bed, bed.mode_model([part], family), [part])
            yield LawFinding(gap(_logits(bed, together, [part]), single_TV), gap(both_TV, single_TV))
        yield LawFinding(gap(_logits(bed, together, ()), backbone_TV), gap(both_TV, backbone_TV))


def gates_sum_to_one(bed: TestBed) -> Iterator[LawFinding]:
    """L5 inside an expert, in every block and whichever parts are on; the control omits the largest weight."""
    for family, active in product(FAMILIES, (PARTS, PARTS[:1], ())):
        expert = bed.parts_together(family, active)
        mixing, rows = Mixing(expert, expert.keys, plain_gate([1.0])), []
        for log_weights_E, _ in mixing.read(bed.ids):
            (gates,) = mixing.gates(log_weights_E.exp()).values()
            rows.append([gates.backbone, *gates.parts.values()])
        weights_TPK = torch.tensor(rows)
        sums, without = weights_TPK.sum(1), weights_TPK.sum(1) - weights_TPK.amax(1)
        yield LawFinding(gap(sums, torch.ones_like(sums)), gap(without, torch.ones_like(sums)))


def _untrained_logits(bed: TestBed, family: Family, config: ModeConfig) -> Tensor:
    """Logits [T, V] with an untrained part."""
    model = bed.mode_model((), family, config.num_blocks)
    model.add_expert("new", config)
    return _logits(bed, model, ["new"])


@torch.inference_mode()
def _logits(bed: TestBed, model: ModeModel, active: Sequence[str]) -> Tensor:
    """Logits [T, V] of the test text."""
    logits_1TV, _ = model(torch.tensor([bed.ids], device=model.device), active)
    logits_TV: Tensor = logits_1TV[0]
    return logits_TV
