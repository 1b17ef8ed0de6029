"""What a training needs of a model, whatever its method."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from engine.models.demix import Rows


class Learner(Protocol):
    """A model with experts known by keys; rows of a batch take one of them.

    Shapes: B rows, T positions, V vocabulary.
    """

    @property
    def lm(self) -> Any:
        """The decoder of transformers."""
        ...

    @property
    def keys(self) -> list[str]: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def max_positions(self) -> int: ...

    def __call__(self, input_ids_BT: Tensor, rows: Rows) -> Tensor:
        """Logits [B, T, V]."""
        ...

    def log_likelihoods(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        """Natural log-likelihood [B, T] of each target."""
        ...

    def shared_parameters(self) -> dict[str, nn.Parameter]: ...

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]: ...

    def training_flops(self, context: int, *, experts_only: bool) -> int:
        """Operations per token trained on, forward and backward; shared parameters may be frozen."""
        ...

    def requires_grad_(self, requires_grad: bool = True) -> Any: ...

    def train(self, mode: bool = True) -> Any: ...

    def eval(self) -> Any: ...
