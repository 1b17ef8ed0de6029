"""The same weights at every token: given, equal for all (DEMix “average”), or all on one expert."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.mixing.base import blocks_per_chunk, keep_top, normalised_prior
from engine.mixing.combine import mix
from engine.mixing.score_sums import fixed_sums

if TYPE_CHECKING:
    from engine.clusters.distances import Distances


class FixedGate:
    """The given weights, scaled to sum 1, at every position."""

    needs_logprobs = False

    def __init__(self, weights: Sequence[float], top_k: int | None = None) -> None:
        self.log_weights_E = keep_top(normalised_prior(weights), top_k)

    def start(self) -> FixedStream:
        return FixedStream(self.log_weights_E)

    def block(self, logprobs_ENT: Tensor, _distances: Distances | None = None) -> Tensor:
        return self.log_weights_E.view(-1, 1, 1).expand(logprobs_ENT.shape)

    def mixed(self, logprobs_ENT: Tensor, _distances: Distances | None = None) -> Tensor:
        pieces = logprobs_ENT.split(blocks_per_chunk(logprobs_ENT), 1)
        return torch.cat([mix(self.log_weights_E, some_ENT.double()) for some_ENT in pieces])

    def total(self, logprobs_ENT: Tensor, _distances: Distances | None = None) -> float:
        total = float(fixed_sums(self.log_weights_E.numpy(), logprobs_ENT.flatten(1).numpy()).sum())
        return float(self.mixed(logprobs_ENT).sum()) if math.isnan(total) else total


class FixedStream:
    """The same weights at every token."""

    def __init__(self, log_weights_E: Tensor) -> None:
        self._log_weights_E = log_weights_E

    def log_weights(self) -> Tensor:
        return self._log_weights_E

    def begin(self, token: int) -> None:
        """Does nothing: the weights do not depend on the text."""

    def observe(self, logprobs_E: Tensor, token: int) -> None:
        """Does nothing: the weights do not depend on the text."""
