"""What scoring and generation need of a model: experts known by keys, whatever their method."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from engine.models.demix import Rows
from engine.models.likelihoods import TokenScores


class ExpertModel(Protocol):
    """A model with experts known by keys; rows of a batch take one of them. Requests leave no trace in it.

    Shapes: B rows, T positions, V vocabulary.
    """

    @property
    def keys(self) -> list[str]: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def max_positions(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    def __call__(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """Logits [B, T, V]; `cache` is one of `new_cache`, filled and used, or None."""
        ...

    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target."""
        ...

    def new_cache(self) -> Any:
        """An empty cache of keys and values, for one growing text of each row."""
        ...
