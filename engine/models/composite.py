"""Several models as one: each row of a batch goes to the model that holds its expert.

Shapes: B rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.models.expert_model import ExpertModel, PartWeights
from engine.models.likelihoods import TokenScores
from engine.models.rows import Rows


class CompositeModel:
    """Several models that read the same tokens. No two hold an expert of the same key."""

    def __init__(self, models: Sequence[ExpertModel]) -> None:
        self.models = tuple(models)

    @property
    def keys(self) -> list[str]:
        return [key for model in self.models for key in model.keys]

    @property
    def device(self) -> torch.device:
        return self.models[0].device

    @property
    def max_positions(self) -> int:
        return min(model.max_positions for model in self.models)

    @property
    def vocab_size(self) -> int:
        return self.models[0].vocab_size

    def __call__(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """Logits [B, T, V]."""
        caches = self._caches(cache)
        (logits_BTV,) = self._each(
            rows, lambda number, share, text: [self.models[number](text, share, caches[number])], input_ids_BT
        )
        return logits_BTV

    def read(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """The last hidden states [B, T, D]: the models are of one base, and so of one width."""
        caches = self._caches(cache)
        (hidden_BTD,) = self._each(
            rows, lambda number, share, text: [self.models[number].read(text, share, caches[number])], input_ids_BT
        )
        return hidden_BTD

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        """Logits [B, T, V] of hidden states."""
        (logits_BTV,) = self._each(
            rows, lambda number, share, hidden: [self.models[number].logits(hidden, share)], hidden_BTD
        )
        return logits_BTV

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        """Log-likelihood [B, T] of each target after hidden states."""
        (logprobs_BT,) = self._each(
            rows, lambda number, share, *both: [self.models[number].likelihoods(*both, share)], hidden_BTD, targets_BT
        )
        return logprobs_BT

    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target."""
        return TokenScores(
            *self._each(
                rows,
                lambda number, share, *both: self.models[number].token_scores(*both, share),
                input_ids_BT,
                targets_BT,
            )
        )

    def new_cache(self) -> list[Any]:
        """A cache for each model."""
        return [model.new_cache() for model in self.models]

    def part_weights(self) -> Mapping[str, PartWeights]:
        """The part weights of the experts of all models."""
        return {key: weights for model in self.models for key, weights in model.part_weights().items()}

    def _caches(self, cache: Any) -> Sequence[Any]:
        return [None] * len(self.models) if cache is None else cache

    def _each(self, rows: Rows, call: Callable[..., Sequence[Tensor]], *tensors: Tensor) -> list[Tensor]:
        """Calls each model once for its rows. Returns the output tensors in the order of the rows."""
        spans = [tensor.split(rows.num_rows) for tensor in tensors]
        answers: list[Sequence[Tensor]] = [()] * len(rows.keys)
        for number, model in enumerate(self.models):
            places = [place for place, key in enumerate(rows.keys) if key in model.keys]
            if places:
                share = Rows(tuple(rows.keys[i] for i in places), tuple(rows.num_rows[i] for i in places))
                outputs = call(number, share, *(torch.cat([span[i] for i in places]) for span in spans))
                for place, *parts in zip(places, *(one.split(share.num_rows) for one in outputs), strict=True):
                    answers[place] = parts
        return [torch.cat(parts) for parts in zip(*answers, strict=True)]
