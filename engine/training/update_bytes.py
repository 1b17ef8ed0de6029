"""Bytes that a training holds at every update, from the numbers of its parameters only: this loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import TrainingConfig

FLOAT32 = 4  # bytes of a weight in float32, and of each of AdamW's two moments
_SMALLEST_8BIT = 4096  # numbers of a parameter from which bitsandbytes holds its moments in 8 bits


@dataclass(frozen=True)
class UpdateBytes:
    """Bytes of all weights, of a gradient of each trained one, and of what is kept of these."""

    weights: int
    gradients: int
    optimizer: int
    best: int  # the best weights so far, with patience

    @property
    def total(self) -> int:
        """All of it, in one memory."""
        return self.weights + self.gradients + self.optimizer + self.best


def update_bytes(trained: Sequence[int], frozen_bytes: int, config: TrainingConfig) -> UpdateBytes:
    """What an update of these parameters holds, given the numbers in each, next to frozen ones of so many bytes."""
    held = (2 if config.precision == "bf16_weights" else FLOAT32) * sum(trained)
    has_8bit = config.optimizer == "adamw_8bit"
    moments = sum(2 * size * (1 if has_8bit and size >= _SMALLEST_8BIT else FLOAT32) for size in trained)
    return UpdateBytes(frozen_bytes + held, held, moments, held if config.patience else 0)
