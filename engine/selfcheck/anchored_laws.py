"""The law of anchored experts (FlexOlmo)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from engine.methods.anchored.descriptor import METHOD
from engine.methods.anchored.placement import Anchored
from engine.methods.moe.checkpoint import as_sparse_moe, set_routers
from engine.methods.ridge.router import trained_routers
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from engine.selfcheck.law import LawFinding, gap
from engine.selfcheck.test_bed import KEYS, TestBed, disturb

TWO = KEYS[:2]


def anchored_are_joined(bed: TestBed) -> Iterator[LawFinding]:
    """L21: an anchored expert begins as its seed, and joined with its seed by its rows it is itself.

    The controls compare with an expert that was trained, and with another expert.
    """
    seed: Any = bed.model().full_model(KEYS[0])
    ids = torch.tensor([bed.ids], device=bed.device)
    model = MultiExpertModel(copy.deepcopy(seed), TWO, METHOD[0].new_placement()).eval()
    with torch.inference_mode():
        of_seed = seed(input_ids=ids).logits
        fresh = [model(ids, Rows.all_to(key, 1)) for key in TWO]
    for number, key in enumerate(TWO):
        disturb(model.expert_parameters(key).values(), 0.1, torch.Generator().manual_seed(number))
    with torch.inference_mode():
        own = [model(ids, Rows.all_to(key, 1)) for key in TWO]
    for number, key in enumerate(TWO):
        yield LawFinding(gap(fresh[number], of_seed), gap(own[number], of_seed))
        loaders: dict[str, Callable[[], Any]] = {"": lambda: seed, key: partial(copy.deepcopy(model).full_model, key)}
        *_, joined = as_sparse_moe(loaders, 2, of_all=True)
        set_routers(joined, trained_routers([_rows(model, key)]).weights_LEH)
        with torch.inference_mode():
            together = cast(Any, joined).to(bed.device)(input_ids=ids).logits
        yield LawFinding(gap(together, own[number]), gap(together, own[number - 1]))


def _rows(model: MultiExpertModel, key: str) -> Tensor:
    return torch.stack([module.row.detach() for _, module in model.own_modules(key) if isinstance(module, Anchored)])
