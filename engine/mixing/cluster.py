"""Weights by the distance of the text so far to each expert's cluster (C-BTM §2.2, Eq. 3).

    w_e ∝ top-k[prior_e · exp(−dist(text before the token, centre of e)² / T)]

The paper has no prior, which equals a prior of equal weights. Top-k comes after the prior, so that an expert of weight
0 takes no place. The released code squares the distance twice: `distance_power` 4.
Weights do not depend on log-probabilities, so experts of weight 0 need not run.
Shapes: E experts, K clusters, N blocks, T positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.config import PAPER_DISTANCE_POWER, PAPER_TEMPERATURE
from engine.errors import MixtureError, NextStep, ScoresError
from engine.mixing.base import BlockGate, Weigher, keep_top, normalised_prior
from engine.mixing.evidence import AnyEvidence
from engine.mixing.posterior import PosteriorGate, PosteriorStream, StreamState

if TYPE_CHECKING:
    from engine.clusters.distances import Distances, GrowingContext


@dataclass(frozen=True)
class Routing:
    """The number of each expert's cluster (None: it has none), and how to follow a growing text.

    `follow` is None where only stored scores are mixed.
    """

    clusters: Sequence[int | None]
    follow: Callable[[], GrowingContext] | None = None


class ClusterGate(BlockGate):
    """Weights depend on the text only; `prior` holds one weight for each expert, in any scale."""

    needs_logprobs = False

    def __init__(
        self,
        prior: Sequence[float],
        routing: Routing,
        *,
        temperature: float = PAPER_TEMPERATURE,
        distance_power: float = PAPER_DISTANCE_POWER,
        top_k: int | None = None,
        freeze_after: int | None = None,
    ) -> None:
        clusters = [cluster for cluster in routing.clusters if cluster is not None]
        if len(clusters) != len(prior):
            raise MixtureError(
                f"The cluster gate needs a cluster for every expert; {len(clusters)} of {len(prior)} have one.",
                "Choose experts that were trained on clusters, or another gate.",
            )
        self.log_prior_E = normalised_prior(prior)
        self.clusters_E = torch.tensor(clusters)
        self.temperature, self.distance_power = temperature, distance_power
        self.top_k, self.freeze_after = top_k, freeze_after
        self._follow = routing.follow

    def start(self) -> ClusterStream:
        if self._follow is None:
            raise MixtureError(
                "The cluster gate needs its clustering to weigh a growing text.",
                "Name the clustering in the gate.",
            )
        return ClusterStream(self, self._follow())

    def weigher(self, _logprobs_ENT: Tensor, distances: Distances | None) -> Weigher:
        frozen = self.distances_or_raise(distances)
        return lambda blocks, some_ENT: self.nearness_weights(frozen, blocks, some_ENT.shape[2])

    def distances_or_raise(self, distances: Distances | None) -> Distances:
        """The distances, frozen where the gate freezes; raises ScoresError when they are missing."""
        if distances is None:
            raise ScoresError(
                "The distances of the scored text to the clusters of the gate are missing.",
                NextStep.EVALUATE_AGAIN,
            )
        return distances.frozen(self.freeze_after)

    def nearness_weights(self, distances: Distances, blocks: range, block_size: int) -> Tensor:
        """Log-weights [E, N, T] in these blocks."""
        return self.log_weights_of(distances.of(self.clusters_E, blocks, block_size))

    def log_weights_of(self, squared: Tensor) -> Tensor:
        """Log-weights from the squared distances [E, …] to the experts' centres."""
        prior = self.log_prior_E.view(-1, *[1] * (squared.dim() - 1))
        return keep_top((self._nearness(squared) + prior).log_softmax(0), self.top_k)

    def relative_nearness(self, distances: Distances, cluster: int, num_blocks: int, block_size: int) -> Tensor:
        """The log-weight [N, T] of an expert of this cluster, without its prior and less that of the nearest cluster.

        It depends on no other expert, so that it can be kept.
        """
        own_and_nearest = distances.beside_nearest(cluster).frozen(self.freeze_after)
        squared_2NT = own_and_nearest.of(torch.arange(2), range(num_blocks), block_size)
        nearness_2NT = self._nearness(squared_2NT)
        return nearness_2NT[0] - nearness_2NT[1]

    def _nearness(self, squared: Tensor) -> Tensor:
        nearness: Tensor = -(squared.double() ** (self.distance_power / 2)) / self.temperature
        return nearness


class ClusterStream:
    """The weights on one growing text."""

    def __init__(self, gate: ClusterGate, context: GrowingContext) -> None:
        self._gate, self._context = gate, context
        self._log_weights_E: Tensor | None = None  # None: the text has grown since they were computed

    def log_weights(self) -> Tensor:
        if self._log_weights_E is None:
            squared_K = self._context.squared_distances()
            self._log_weights_E = self._gate.log_weights_of(squared_K[self._gate.clusters_E])
        return self._log_weights_E

    def begin(self, token: int) -> None:
        """Reads the first token like any other."""
        self._read(token)

    def observe(self, _logprobs_E: Tensor, token: int) -> None:
        """Reads the token; log-probabilities do not matter."""
        self._read(token)

    def _read(self, token: int) -> None:
        frozen = self._gate.freeze_after is not None and self._context.num_tokens >= self._gate.freeze_after
        if frozen:
            self.log_weights()  # keep the weights of this position
        self._context.read(token)
        if not frozen or not self._context.num_tokens:
            self._log_weights_E = None


class ClusterPosteriorGate(PosteriorGate):
    """A posterior whose prior follows the text; top-k applies to the posterior, not to the prior."""

    def __init__(
        self,
        prior: Sequence[float],
        routing: Routing,
        evidence: AnyEvidence = "prefix",
        top_k: int | None = None,
        *,
        temperature: float = PAPER_TEMPERATURE,
        distance_power: float = PAPER_DISTANCE_POWER,
        freeze_after: int | None = None,
    ) -> None:
        super().__init__(prior, evidence, top_k)
        clustered = [(place, cluster) for place, cluster in enumerate(routing.clusters) if cluster is not None]
        self.places_C = [place for place, _ in clustered]
        weights_C = [prior[place] for place in self.places_C]
        self.nearness = (
            ClusterGate(
                weights_C,
                Routing([cluster for _, cluster in clustered], routing.follow),
                temperature=temperature,
                distance_power=distance_power,
                freeze_after=freeze_after,
            )
            if any(weights_C)
            else None
        )
        self._log_share = self.log_prior_E[self.places_C].logsumexp(0)

    def start(self, belief: StreamState | None = None) -> PosteriorStream:
        """A fresh stream; with a belief one that continues after `begin` was called with every token so far."""
        stream = super().start(belief)
        if self.nearness is None:
            return stream
        return ClusterPosteriorStream(self, stream.belief, self.nearness.start())

    def weigher(self, logprobs_ENT: Tensor, distances: Distances | None) -> Weigher:
        nearness = self.nearness
        if nearness is None:
            return super().weigher(logprobs_ENT, distances)
        frozen = nearness.distances_or_raise(distances)

        def weigh(blocks: range, some_ENT: Tensor) -> Tensor:
            near_CNT = nearness.nearness_weights(frozen, blocks, some_ENT.shape[2])
            return self.weigh(self.evidence_before(some_ENT), self.log_prior(near_CNT))

        return weigh

    def total(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> float:
        return BlockGate.total(self, logprobs_ENT, distances)  # the sum does not telescope under a prior that changes

    def log_prior(self, near: Tensor) -> Tensor:
        """The log-prior [E, …] from the cluster gate's log-weights [C, …]."""
        prior = self.log_prior_E.double().view(-1, *[1] * (near.dim() - 1)).repeat(1, *near.shape[1:])
        prior[self.places_C] = near + self._log_share
        return prior


class ClusterPosteriorStream(PosteriorStream):
    """The posterior and the cluster weights on one growing text."""

    def __init__(self, gate: ClusterPosteriorGate, belief: StreamState, nearness: ClusterStream) -> None:
        super().__init__(gate, belief)
        self._prior, self._nearness = gate.log_prior, nearness

    def log_weights(self) -> Tensor:
        return self._gate.weigh(self._gate.evidence_of(self.belief), self._prior(self._nearness.log_weights()))

    def begin(self, token: int) -> None:
        """Reads the token as text; it is not evidence."""
        self._nearness.begin(token)

    def observe(self, logprobs_E: Tensor, token: int) -> None:
        super().observe(logprobs_E, token)
        self._nearness.observe(logprobs_E, token)
