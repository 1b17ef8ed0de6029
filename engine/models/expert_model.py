"""The interface of models for scoring and generation: experts known by keys, for any method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from engine.events import GateWeights
from engine.files import ArtifactRef
from engine.models.likelihoods import TokenScores
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
        ...

    def read(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """The last hidden states [B, T, D], from which `logits` and `likelihoods` are computed where they are used."""
        ...

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        """Logits [B, T, V] of hidden states."""
        ...

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        """Log-likelihood [B, T] of each target after hidden states, never all logits at once."""
        ...

    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target."""
        ...

    def new_cache(self) -> Any:
        """An empty cache of keys and values, for one growing text of each row."""
        ...

    def part_weights(self) -> Mapping[str, PartWeights]:
        """The part weights of each expert that has parts, at the tokens of this view's last forward pass."""
        ...


class ExpertHost(Protocol):
    """The experts of one base that one method holds in memory."""

    @property
    def keys(self) -> list[str]: ...

    def add(self, experts: Mapping[str, ArtifactRef]) -> None:
        """Loads experts, every byte checked before use; what is there stays if one cannot be loaded."""
        ...

    def view(self, keys: Sequence[str], parts: Mapping[str, Sequence[str]]) -> list[ExpertModel]:
        """Models that hold these experts; `parts` names the active parts of some (else all)."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """All tensors in memory by name."""
        ...

    def modules(self) -> list[nn.Module]:
        """The modules that hold all parameters in memory."""
        ...

    def num_parameters(self, key: str) -> int:
        """The number of an expert's own parameters."""
        ...

    def num_bodies_to_load(self, experts: Mapping[str, ArtifactRef]) -> int:
        """The number of copies of the base that must be loaded for these experts."""
        ...

    def num_bytes(self) -> int:
        """Bytes of all parameters."""
        ...
