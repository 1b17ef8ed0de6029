"""Several models as one: each row of a batch goes to the model that holds its expert.

Shapes: B rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.models.expert_model import ExpertModel, PartWeights
from engine.models.likelihoods import TokenScores
from engine.models.rows import Rows


class CompositeModel:
    """An `ExpertModel` of several models that read the same tokens. No two hold an expert of the same key."""

    def __init__(self, models: Sequence[ExpertModel]) -> None:
        self.models = tuple(models)
        self.device, self.vocab_size = models[0].device, models[0].vocab_size
        self.max_positions = min(model.max_positions for model in models)

    @property
    def keys(self) -> list[str]:
        return [key for model in self.models for key in model.keys]

    def __call__(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        return self._each("__call__", rows, input_ids_BT, caches=cache)[0]

    def read(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """The last hidden states [B, T, D]: the models are of one base, and so of one width."""
        return self._each("read", rows, input_ids_BT, caches=cache)[0]

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        return self._each("logits", rows, hidden_BTD)[0]

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        return self._each("likelihoods", rows, hidden_BTD, targets_BT)[0]

    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        return TokenScores(*self._each("token_scores", rows, input_ids_BT, targets_BT))

    def new_cache(self) -> list[Any]:
        """A cache for each model."""
        return [model.new_cache() for model in self.models]

    def part_weights(self) -> Mapping[str, PartWeights]:
        return {key: weights for model in self.models for key, weights in model.part_weights().items()}

    def _each(self, method: str, rows: Rows, *tensors: Tensor, caches: Sequence[Any] | None = None) -> list[Tensor]:
        """Calls a method of each model once for its rows. Returns the output tensors in the order of the rows."""
        spans = [tensor.split(rows.num_rows) for tensor in tensors]
        answers: list[Sequence[Tensor]] = [()] * len(rows.keys)
        for number, model in enumerate(self.models):
            places = [place for place, key in enumerate(rows.keys) if key in model.keys]
            if places:
                share = Rows(tuple(rows.keys[i] for i in places), tuple(rows.num_rows[i] for i in places))
                inputs = [torch.cat([span[i] for i in places]) for span in spans]
                outputs = getattr(model, method)(*inputs, share, *(() if caches is None else (caches[number],)))
                outputs = outputs if isinstance(outputs, tuple) else (outputs,)
                for place, *parts in zip(places, *(one.split(share.num_rows) for one in outputs), strict=True):
                    answers[place] = parts
        return [torch.cat(parts) for parts in zip(*answers, strict=True)]
