"""Laws of MoDE: what parts beside a frozen backbone say together, and what the gates between them weigh.

Shapes: K blocks, P parts, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from engine.config import Family
from engine.inference.generate import Mixing
from engine.methods.mode.config import Init, ModeConfig
from engine.methods.mode.model import ModeModel
from engine.selfcheck.law import Finding, gap
from engine.selfcheck.test_bed import FAMILIES, PARTS, TestBed, plain_gate

STARTS: tuple[tuple[Init, int], ...] = (("copy", 1), ("random", 1), ("copy", 2))  # the last is a copy of its block


def parts_of_one_backbone(ground: TestBed) -> Iterator[Finding]:
    """L12, in every family; the controls begin with equal weights, and leave the other part on."""
    for family in FAMILIES:
        backbone_TV = _said(ground, ground.mode_model((), family, num_blocks=1), ())
        for init, num_layers in STARTS:
            closed_TV = _beginning(ground, family, ModeConfig(1, num_layers, init))
            open_TV = _beginning(ground, family, ModeConfig(1, 1, "random", "even"))
            yield Finding(gap(closed_TV, backbone_TV), gap(open_TV, backbone_TV))
        together = ground.mode_model(PARTS, family)
        both_TV = _said(ground, together, PARTS)
        for part in PARTS:
            alone_TV = _said(ground, ground.mode_model([part], family), [part])
            yield Finding(gap(_said(ground, together, [part]), alone_TV), gap(both_TV, alone_TV))
        yield Finding(gap(_said(ground, together, ()), backbone_TV), gap(both_TV, backbone_TV))


def gates_sum_to_one(ground: TestBed) -> Iterator[Finding]:
    """L5 inside an expert, in every block and whichever parts are on; the control leaves out the largest weight."""
    for family, active in product(FAMILIES, (PARTS, PARTS[:1], ())):
        expert = ground.parts_together(family, active)
        mixing, found = Mixing(expert, expert.keys, plain_gate([1.0])), []
        for log_weights_E, _ in mixing.read(ground.ids):
            (told,) = mixing.gates(log_weights_E.exp()).values()
            found.append([told.backbone, *told.parts.values()])
        weights_TPK = torch.tensor(found)
        sums, without = weights_TPK.sum(1), weights_TPK.sum(1) - weights_TPK.amax(1)
        yield Finding(gap(sums, torch.ones_like(sums)), gap(without, torch.ones_like(sums)))


def _beginning(ground: TestBed, family: Family, config: ModeConfig) -> Tensor:
    """Logits [T, V] with a part that has not learnt yet."""
    model = ground.mode_model((), family, config.num_blocks)
    model.add_expert("new", config)
    return _said(ground, model, ["new"])


@torch.inference_mode()
def _said(ground: TestBed, model: ModeModel, active: Sequence[str]) -> Tensor:
    """Logits [T, V] of the ground's text."""
    logits_1TV, _ = model(torch.tensor([ground.ids], device=model.device), active)
    said_TV: Tensor = logits_1TV[0]
    return said_TV
