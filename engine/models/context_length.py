"""The context length of models, and the check that blocks of text fit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import TrainingError

if TYPE_CHECKING:
    from engine.models.expert_model import TrainableModel


@dataclass(frozen=True)
class Limits:
    """The context length of a base in tokens, and the size of its vocabulary."""

    max_positions: int
    vocab_size: int


def require_context(model: TrainableModel | Limits, block_size: int) -> None:
    """Raises TrainingError when blocks are longer than the context of a model."""
    if block_size > model.max_positions:
        raise TrainingError(
            f"block_size {block_size} is above the model's context of {model.max_positions} tokens.",
            "Choose a smaller block size, or a seed with a longer context.",
        )
