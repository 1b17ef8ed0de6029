"""The law of routers in closed form (DUME). Shapes: L layers, E experts, N tokens, H the width of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from engine.methods.moe.checkpoint import as_sparse_moe, set_routers
from engine.methods.ridge.router import NETWORK, Sums, gather, inputs_of, solve
from engine.selfcheck.law import LawFinding, gap, relative_gap
from engine.selfcheck.test_bed import BLOCK, KEYS, TestBed
from engine.text.blocks import EvalSample

SHRINKAGE, NUM_BLOCKS = 0.05, 24


def routers_are_solved(bed: TestBed) -> Iterator[LawFinding]:
    """L20: routers of streamed sums are those of all inputs at once; the expert that is always chosen is the model.

    The controls solve with another penalty, and compare with another expert.
    """
    lms = {key: bed.model().full_model(key) for key in KEYS}
    sums, inputs = list[Sums](), list[Tensor]()
    for lm, text in zip(lms.values(), bed.texts(KEYS), strict=True):
        *_, of_text = gather(lm, [EvalSample.of_blocks(text.train, BLOCK, NUM_BLOCKS)])
        assert isinstance(of_text, Sums)
        sums.append(of_text)
        blocks_NT = torch.from_numpy(text.train.array[: NUM_BLOCKS * BLOCK].astype("int64")).view(-1, BLOCK)
        inputs.append(_inputs(lm, blocks_NT.to(bed.device)))
    expected_LEH = torch.stack([_regression(of_layer) for of_layer in zip(*inputs, strict=True)])
    solved_LEH, other_LEH = (solve(sums, penalty).weights_LEH for penalty in (SHRINKAGE, 4 * SHRINKAGE))
    yield LawFinding(relative_gap(solved_LEH, expected_LEH), relative_gap(other_LEH, expected_LEH))
    ids = torch.tensor([bed.ids], device=bed.device)
    with torch.inference_mode():
        logits = [lm(input_ids=ids).logits for lm in lms.values()]
    for number, lm in enumerate(lms.values()):
        *_, joined = as_sparse_moe({key: partial(lms.__getitem__, key) for key in KEYS}, 1)
        set_routers(joined, _always(_inputs(lm, ids), number))
        with torch.inference_mode():
            own = cast(Any, joined).to(bed.device)(input_ids=ids).logits
        yield LawFinding(gap(own, logits[number]), gap(own, logits[number - 1]))


@torch.inference_mode()
def _inputs(lm: Any, ids_NT: Tensor) -> Tensor:
    """What goes into each layer's network [L, N, H], in float64."""
    seen = list[Tensor]()
    with inputs_of(lm, NETWORK, lambda _, x: seen.append(x.flatten(0, -2).cpu().double())):
        lm(input_ids=ids_NT)
    return torch.stack(seen)


def _regression(inputs: Sequence[Tensor]) -> Tensor:
    """The router [E, H] of one layer by least squares over all tokens, each text counting alike."""
    x_NH = torch.cat([of_text / len(of_text) ** 0.5 for of_text in inputs])
    labels_NE = torch.block_diag(*(torch.full((len(of_text), 1), len(of_text) ** -0.5) for of_text in inputs)).double()
    width = x_NH.shape[1]
    penalty = SHRINKAGE * (x_NH**2).sum() / width
    rows = torch.cat([x_NH, penalty.sqrt() * torch.eye(width).double()])
    targets = torch.cat([labels_NE, torch.zeros(width, len(inputs)).double()])
    router_EH: Tensor = torch.linalg.lstsq(rows, targets).solution.T
    lengths_E1: Tensor = router_EH.norm(dim=1, keepdim=True)
    return router_EH / lengths_E1


def _always(inputs_LNH: Tensor, number: int) -> Tensor:
    """Routers that prefer one expert at these inputs, of fewer tokens than dimensions."""
    routers_LEH = torch.zeros(len(inputs_LNH), len(KEYS), inputs_LNH.shape[2], dtype=torch.float64)
    ones_N1 = torch.ones(inputs_LNH.shape[1], 1, dtype=torch.float64)
    routers_LEH[:, number] = (torch.linalg.pinv(inputs_LNH) @ ones_N1)[..., 0]
    return routers_LEH
