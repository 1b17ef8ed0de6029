"""Weights from the nearness of the text so far to each expert's cluster (C-BTM §2.2, Eq. 3).

    w_e ∝ prior_e · top-k[exp(−dist(text before the token, centre of e)² / T)]

The paper has no prior, which is one of equal weights. The released code squares the distance twice: `distance_power` 4.
What the experts say of the text plays no part, so those without weight need not be asked.
Shapes: E experts, K clusters, N blocks, T positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.errors import MixtureError, ScoresError
from engine.mixing.base import blocks_at_once, keep_top, normalised_prior
from engine.mixing.combine import mix

if TYPE_CHECKING:
    from engine.clusters.distances import Distances, GrowingContext


@dataclass(frozen=True)
class Routing:
    """The cluster of each expert, by number; and what follows a live text, None where only stored ones are mixed."""

    clusters: Sequence[int]
    follow: Callable[[], GrowingContext] | None = None


class ClusterGate:
    """Weights follow the text alone; `prior` holds one weight for each expert, in any scale."""

    listens = False

    def __init__(
        self, prior: Sequence[float], routing: Routing, *,
        temperature: float = 0.1, distance_power: float = 2, top_k: int | None = None, freeze_after: int | None = None,
    ) -> None:  # fmt: skip
        if len(routing.clusters) != len(prior):
            raise MixtureError(
                f"Every expert must have a cluster, but {len(routing.clusters)} of {len(prior)} have one.",
                "Take experts that were trained on clusters, or another gate.",
            )
        self.log_prior_E = normalised_prior(prior)
        self.clusters_E = torch.tensor(list(routing.clusters))
        self.temperature, self.distance_power = temperature, distance_power
        self.top_k, self.freeze_after = top_k, freeze_after
        self._follow = routing.follow

    def start(self) -> ClusterStream:
        if self._follow is None:
            raise MixtureError(
                "The cluster gate must have its clustering to weigh a growing text, but has none.",
                "Name the clustering in the gate.",
            )
        return ClusterStream(self, self._follow())

    def block(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        _, num_blocks, block_size = logprobs_ENT.shape
        return self.weigh(self._looked_at(distances).of(self.clusters_E, range(num_blocks), block_size))

    def mixed(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        looked_at, at_once, pieces = self._looked_at(distances), blocks_at_once(logprobs_ENT), []
        for first in range(0, logprobs_ENT.shape[1], at_once):
            some_ENT = logprobs_ENT[:, first : first + at_once]
            blocks = range(first, first + some_ENT.shape[1])
            squared_ENT = looked_at.of(self.clusters_E, blocks, some_ENT.shape[2])
            pieces.append(mix(self.weigh(squared_ENT), some_ENT.double()))
        return torch.cat(pieces)

    def total(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> float:
        return float(self.mixed(logprobs_ENT, distances).sum())

    def _looked_at(self, distances: Distances | None) -> Distances:
        if distances is None:
            raise ScoresError(
                "The cluster gate must have the distances of the scored text to its clusters, but has none.",
                "Evaluate the mixture again: workbench eval run.",
            )
        return distances.frozen(self.freeze_after)

    def weigh(self, squared: Tensor) -> Tensor:
        """Log-weights from the squared distances [E, …] to the experts' centres."""
        prior = self.log_prior_E.view(-1, *[1] * (squared.dim() - 1))
        nearness = -(squared.double() ** (self.distance_power / 2)) / self.temperature
        return keep_top((nearness + prior).log_softmax(0), self.top_k)


class ClusterStream:
    """The weights on one growing text."""

    def __init__(self, gate: ClusterGate, context: GrowingContext) -> None:
        self._gate, self._context = gate, context
        self._log_weights_E: Tensor | None = None  # None: the text has grown since

    def log_weights(self) -> Tensor:
        if self._log_weights_E is None:
            squared_K = self._context.squared_distances()
            self._log_weights_E = self._gate.weigh(squared_K[self._gate.clusters_E])
        return self._log_weights_E

    def begin(self, token: int) -> None:
        """The first token is text like the others."""
        self._read(token)

    def observe(self, _logprobs_E: Tensor, token: int) -> None:
        """Reads the token; what the experts said of it does not matter."""
        self._read(token)

    def _read(self, token: int) -> None:
        frozen = self._gate.freeze_after is not None and self._context.num_tokens >= self._gate.freeze_after
        if frozen:
            self.log_weights()  # as they are now, once
        self._context.read(token)
        if not frozen or not self._context.num_tokens:
            self._log_weights_E = None
