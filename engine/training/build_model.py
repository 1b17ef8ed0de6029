"""The model that a training begins with: the seed, opened as its method asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.config import LoraConfig
from engine.models.demix import MultiExpertModel
from engine.models.families import load_model
from engine.models.lora import fresh_adapter
from engine.models.moe import upcycle
from engine.training.methods import METHODS, Recipe


def build_model(seed_folder: Path, keys: Sequence[str], recipe: Recipe, seed: int = 0) -> MultiExpertModel:
    """The seed with these experts, all alike; `seed` is that of what the seed model does not hold.

    Raises ModelError when the seed cannot be opened so.
    """
    lm = load_model(seed_folder)
    method = METHODS[recipe.method]
    if method.experts_in == "adapter":
        return adapted(lm, keys, recipe.lora, seed)
    if recipe.method == "moe":
        lm = upcycle(lm, recipe.moe, seed)
    return MultiExpertModel(lm, keys, method.experts_in)


def adapted(lm: Any, keys: Sequence[str], config: LoraConfig, seed: int = 0) -> MultiExpertModel:
    """The model with the same new adapter for each expert."""
    adapter = fresh_adapter(lm, config, seed)
    model = MultiExpertModel(lm, [], "adapter")
    for key in keys:
        model.add_expert(key, state=adapter)
    return model
