"""Rows of several texts each, and models of every method whose experts differ, to read them with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.config import LoraConfig
from engine.methods.lora.adapters import fresh_adapter
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.model import ModeModel
from engine.methods.multi_expert_files import new_placement
from engine.methods.parts.parts_model import ActiveParts
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows
from tests.engine.models.tiny_families import VOCAB

LENGTHS = ((5, 9, 4), (11, 1, 6))  # of the texts of each row; what comes last stands for padding
IDS = torch.randint(VOCAB, (2, 18), generator=torch.Generator().manual_seed(1))
POSITIONS = torch.stack([torch.cat([torch.arange(length) for length in lengths]) for lengths in LENGTHS])


def row_model(lm: Any, experts_in: str, keys: list[str]) -> MultiExpertModel:
    """Experts that differ."""
    adapter = fresh_adapter(lm, LoraConfig(rank=2)) if experts_in == "adapter" else None
    model = MultiExpertModel(lm, [] if adapter else keys, new_placement(experts_in)).eval()
    for key in keys if adapter else []:
        model.add_expert(key, state=adapter)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for key in keys:
            for parameter in model.expert_parameters(key).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model


def dense(lm: Any) -> MultiExpertModel:
    return row_model(lm, "ffn", ["a"])


def demix(lm: Any) -> MultiExpertModel:
    return row_model(lm, "ffn", ["a", "b"])


def lora(lm: Any) -> MultiExpertModel:
    return row_model(lm, "adapter", ["a", "b"])


def mode(lm: Any) -> ActiveParts:
    model = ModeModel(lm, 1)
    model.add_expert("part", ModeConfig(1, 1))
    with torch.no_grad():
        for parameter in model.expert_parameters("part").values():
            parameter.add_(0.02)
    return ActiveParts(model, ["part"], "a").eval()


METHODS: dict[str, Callable[[Any], Any]] = {"dense": dense, "DEMix": demix, "LoRA": lora, "MoDE": mode}


def rows_of(model: Any) -> Rows:
    return Rows.one_each(model.keys) if len(model.keys) > 1 else Rows.all_to(model.keys[0], 2)


def pieces() -> list[tuple[int, slice]]:
    """Row and place of every text."""
    return [
        (row, slice(sum(lengths[:n]), sum(lengths[: n + 1]))) for row, lengths in enumerate(LENGTHS) for n in range(3)
    ]


def by_itself(model: Any, row: int, ids: Tensor) -> Tensor:
    return model(ids[None], Rows.all_to(model.keys[row % len(model.keys)], 1))[0]


@torch.no_grad()
def largest_difference(model: Any) -> float:
    """Of the logits of any text in its row from those that it has alone."""
    logits = model(IDS, rows_of(model), position_ids_BT=POSITIONS)
    return max(
        float((logits[row, place] - by_itself(model, row, IDS[row, place])).abs().max()) for row, place in pieces()
    )
