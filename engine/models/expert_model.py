"""The interfaces of models with experts known by keys, for any method: to score and generate, and to train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from engine.errors import TrainingError
from engine.events import GateWeights
from engine.files import ArtifactRef
from engine.models.discovery import RouterLosses
from engine.models.likelihoods import Objective, TokenLosses, TokenScores
from engine.models.rows import Rows


@dataclass(frozen=True)
class PartWeights:
    """The weights [K, 1 + P, B, T] in K blocks of an expert's backbone, which is the first, and of its P parts."""

    parts: tuple[str, ...]
    weights_KPBT: Tensor

    def at(self, position: int) -> GateWeights:
        """The part weights of the first row at one position."""
        backbone, *parts = map(tuple, self.weights_KPBT[:, :, 0, position].T.tolist())
        return GateWeights(backbone, dict(zip(self.parts, parts, strict=True)))

    def last(self) -> PartWeights:
        """The part weights of the last position only."""
        return PartWeights(self.parts, self.weights_KPBT[..., -1:])


class Experts(Protocol):
    """A model with experts known by keys; each row of a batch uses one. Training and scoring need only this."""

    @property
    def keys(self) -> list[str]: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def max_positions(self) -> int: ...


class ExpertModel(Experts, Protocol):
    """A model for scoring and generation; requests do not change it.

    Shapes: B rows, T positions, D width, V vocabulary.
    """

    @property
    def vocab_size(self) -> int: ...

    def __call__(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """Logits [B, T, V]; `cache` is one of `new_cache`, filled and used, or None."""

    def read(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """The last hidden states [B, T, D], from which `logits` and `likelihoods` are computed where they are used."""

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        """Logits [B, T, V] of hidden states."""

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        """Log-likelihood [B, T] of each target after hidden states, never all logits at once."""

    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target."""

    def new_cache(self) -> Any:
        """An empty cache of keys and values, for one growing text of each row."""

    def part_weights(self) -> Mapping[str, PartWeights]:
        """The part weights of each expert that has parts, at the tokens of this view's last forward pass."""


class ExpertHost(Protocol):
    """The experts of one base that one method holds in memory."""

    @property
    def keys(self) -> list[str]: ...

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        """Loads experts, every byte checked before use; what is there stays if one cannot be loaded."""

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]]) -> list[ExpertModel]:
        """Models that hold these experts; `parts` names the active parts of some (else all)."""

    def tensors(self) -> dict[str, Tensor]:
        """All tensors in memory by name."""

    def modules(self) -> list[nn.Module]:
        """The modules that hold all parameters in memory."""

    def num_parameters(self, key: str) -> int:
        """The number of an expert's own parameters."""

    def num_bodies_to_load(self, experts: Mapping[str, ArtifactRef]) -> int:
        """The number of copies of the base that must be loaded for these experts."""

    def num_bytes(self) -> int:
        """Bytes of all parameters."""


class TrainableModel(Experts, Protocol):
    """A model as the training loop uses it.

    Shapes: B rows, T positions, V vocabulary.
    """

    @property
    def lm(self) -> Any:
        """The decoder of transformers."""

    def __call__(self, input_ids_BT: Tensor, rows: Rows, *, position_ids_BT: Tensor | None = None) -> Tensor:
        """Logits [B, T, V]. `position_ids_BT` start again at 0 at each text of a row, and so keep these apart."""

    def losses(
        self,
        input_ids_BT: Tensor,
        targets_BT: Tensor,
        rows: Rows,
        objective: Objective,
        *,
        position_ids_BT: Tensor | None = None,
    ) -> TokenLosses:
        """The objective with gradients and the loss of each target; never all logits at once."""

    def token_scores(
        self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows, *, position_ids_BT: Tensor | None = None
    ) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target; `position_ids_BT` as above."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def buffers(self) -> Iterator[Tensor]: ...

    def shared_parameters(self) -> dict[str, nn.Parameter]: ...

    def expert_parameters(self, key: str) -> dict[str, nn.Parameter]: ...

    def auxiliary_loss(self) -> AbstractContextManager[RouterLosses]:
        """What is added to the loss of the forward passes within."""

    def training_flops(self, context: int, *, experts_only: bool) -> int:
        """Operations per token trained on, forward and backward; shared parameters may be frozen."""

    def to(self, device: torch.device) -> Any:
        """The same model, moved to a device."""

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


@dataclass(frozen=True)
class ModelLimits:
    """The context length of a base in tokens, and the size of its vocabulary."""

    max_positions: int
    vocab_size: int


def require_context(model: TrainableModel | ModelLimits, block_size: int) -> None:
    """Raises TrainingError when blocks are longer than the context of a model."""
    if block_size > model.max_positions:
        problem = f"block_size {block_size} is above the model's context of {model.max_positions} tokens."
        raise TrainingError(problem, "Choose a smaller block size, or a seed with a longer context.")
