"""A mixture of experts on several bases that share a tokenizer: DEMix experts on one base, or full models (ELMs).

A base with its experts is one model. It is requested again for every piece of text, so that its owner may drop it
from memory while its experts are not used.
Shapes: E experts, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor

from engine.errors import MixtureError
from engine.models.expert_model import ExpertModel
from engine.models.rows import Rows


@dataclass(frozen=True)
class Group:
    """Experts of one base by key, and a function that returns their model."""

    keys: tuple[str, ...]
    model: Callable[[], ExpertModel]
    max_positions: int
    vocab_size: int


@dataclass(frozen=True)
class Ensemble:
    """Groups of experts whose next-token distributions can be mixed.

    Raises MixtureError without experts, or when vocabulary sizes differ.
    """

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        if not any(group.keys for group in self.groups):
            raise MixtureError("The mixture has no active expert.", "Switch one on.")
        sizes = {group.vocab_size for group in self.groups}
        if len(sizes) > 1:
            raise MixtureError(
                f"Models of one mixture need vocabularies of one size, got {sorted(sizes)}.",
                "Mix experts of the same seed model, or of seeds with the same vocabulary size.",
            )

    @property
    def max_positions(self) -> int:
        """The longest text that every model reads at once."""
        return min(group.max_positions for group in self.groups)

    @property
    def vocab_size(self) -> int:
        return self.groups[0].vocab_size

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """All experts, group by group."""
        return tuple(chain.from_iterable(group.keys for group in self.groups))

    def only(self, keys: Sequence[str]) -> Ensemble:
        """The ensemble with only these experts, in the order given per group; raises MixtureError for unknown ones."""
        if unknown := [key for key in keys if key not in self.keys]:
            raise MixtureError(f"There is no expert “{unknown[0]}”.", f"Choose from {', '.join(self.keys)}.")
        remaining = ((group, tuple(key for key in keys if key in group.keys)) for group in self.groups)
        return Ensemble(tuple(replace(group, keys=left) for group, left in remaining if left))

    @torch.inference_mode()
    def logprobs(self, keys: Sequence[str], ids_T: Tensor) -> Tensor:
        """Log-probabilities [E, T, V] of each expert in the order of `keys`, by forward passes without a cache."""
        chosen = self.only(keys)
        return chosen.together([_logprobs(group, ids_T) for group in chosen.groups], keys)

    def together(self, parts: Sequence[Tensor], keys: Sequence[str]) -> Tensor:
        """Joins the groups' tensors to one [E, …] in the order of `keys`, bit-identical."""
        if len(parts) == 1:
            return parts[0]
        return torch.cat(list(parts))[[self.keys.index(key) for key in keys]]


Models = ExpertModel | Ensemble


def as_ensemble(models: Models, keys: Sequence[str]) -> Ensemble:
    """These experts of a single model, or of an ensemble."""
    if isinstance(models, Ensemble):
        return models.only(keys)
    return Ensemble((group_of(models, keys),))


def group_of(model: ExpertModel, keys: Sequence[str]) -> Group:
    """A group of experts of a model in memory."""
    return Group(tuple(keys), lambda: model, model.max_positions, model.vocab_size)


def _logprobs(group: Group, ids_T: Tensor) -> Tensor:
    model = group.model()
    ids_ET = ids_T.to(model.device).expand(len(group.keys), -1)
    return model(ids_ET, Rows.one_each(group.keys)).float().log_softmax(-1)
