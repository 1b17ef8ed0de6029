"""What a training needs of a model, whatever its method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from engine.models.expert_model import Experts
from engine.models.likelihoods import Losses, Objective
from engine.models.routers import RouterLosses
from engine.models.rows import Rows


class TrainableModel(Experts, Protocol):
    """A model as the training loop uses it.

    Shapes: B rows, T positions, V vocabulary.
    """

    @property
    def lm(self) -> Any:
        """The decoder of transformers."""
        ...

    def __call__(self, input_ids_BT: Tensor, rows: Rows, *, position_ids_BT: Tensor | None = None) -> Tensor:
        """Logits [B, T, V]. `position_ids_BT` begin anew at 0 at each text of a row, and so keep these apart."""
        ...

    def losses(
        self,
        input_ids_BT: Tensor,
        targets_BT: Tensor,
        rows: Rows,
        objective: Objective,
        *,
        position_ids_BT: Tensor | None = None,
    ) -> Losses:
        """The objective with gradients and the loss of each target; never all logits at once."""
        ...

    def log_likelihoods(
        self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows, *, position_ids_BT: Tensor | None = None
    ) -> Tensor:
        """Natural log-likelihood [B, T] of each target; `position_ids_BT` as above."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def buffers(self) -> Iterator[Tensor]: ...

    def shared_parameters(self) -> dict[str, nn.Parameter]: ...

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]: ...

    def auxiliary_loss(self) -> AbstractContextManager[RouterLosses]:
        """What is added to the loss of the forward passes within."""
        ...

    def training_flops(self, context: int, *, experts_only: bool) -> int:
        """Operations per token trained on, forward and backward; shared parameters may be frozen."""
        ...

    def to(self, device: torch.device) -> Any:
        """The same model, moved to a device."""
        ...

    def requires_grad_(self, requires_grad: bool = True) -> Any: ...

    def train(self, mode: bool = True) -> Any: ...

    def eval(self) -> Any: ...


def trainable(model: TrainableModel, only_experts: Sequence[str] | None) -> Mapping[str, nn.Parameter]:
    """The parameters to train by name; turns the gradients of all others off."""
    parameters: dict[str, nn.Parameter] = {} if only_experts is not None else model.shared_parameters()
    for key in model.keys if only_experts is None else only_experts:
        parameters |= model.expert_parameters(key)
    model.requires_grad_(False)
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    return parameters
