"""Nearness as the prior of a posterior: Eq. 3 of C-BTM inside Eq. 7 of DEMix. Ours.

    w_j ∝ prior_j(x_<t) · p(x_<t | D=j)
    prior_j(x_<t) = P_C · Eq. 3 among the experts of clusters     for an expert of a cluster
                  = π_j                                           for any other

π are the given weights, 1/E where they are equal, and P_C is what those of the experts of clusters sum to: nearness
moves weight between clusters, evidence moves it between all. Without a cluster it is the posterior; where evidence says
nothing, and all are of clusters, it is the cluster gate.
Shapes: E experts, C of them of clusters, N blocks, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.config import Evidence
from engine.mixing.base import some_blocks
from engine.mixing.cluster import ClusterGate, ClusterStream, Routing
from engine.mixing.combine import mix
from engine.mixing.posterior import Belief, PosteriorGate, PosteriorStream

if TYPE_CHECKING:
    from engine.clusters.distances import Distances


class ClusterPosteriorGate(PosteriorGate):
    """A posterior whose prior follows the text; top-k keeps the best of the posterior, not of the prior."""

    def __init__(
        self,
        prior: Sequence[float],
        routing: Routing,
        evidence: Evidence = "prefix",
        top_k: int | None = None,
        *,
        temperature: float = 0.1,
        distance_power: float = 2,
        freeze_after: int | None = None,
    ) -> None:
        super().__init__(prior, evidence, top_k)
        found = [(place, cluster) for place, cluster in enumerate(routing.clusters) if cluster is not None]
        self._places_C = [place for place, _ in found]
        weights_C = [prior[place] for place in self._places_C]
        self._nearness = (
            ClusterGate(
                weights_C,
                Routing([cluster for _, cluster in found], routing.follow),
                temperature=temperature,
                distance_power=distance_power,
                freeze_after=freeze_after,
            )
            if any(weights_C)
            else None
        )
        self._log_share = self.log_prior_E[self._places_C].logsumexp(0)

    def start(self, belief: Belief | None = None) -> PosteriorStream:
        """A fresh stream; with a belief one that goes on, once `begin` has had every token of the text so far."""
        stream = super().start(belief)
        if self._nearness is None:
            return stream
        return ClusterPosteriorStream(self, stream.belief, self._nearness.start())

    def block(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        looked_at = self._looked_at(distances)
        return self._weighed(logprobs_ENT, looked_at, range(logprobs_ENT.shape[1]))

    def mixed(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        looked_at = self._looked_at(distances)
        pieces = (
            mix(self._weighed(some_ENT, looked_at, blocks), some_ENT.double())
            for blocks, some_ENT in some_blocks(logprobs_ENT)
        )
        return torch.cat(list(pieces))

    def total(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> float:
        return float(self.mixed(logprobs_ENT, distances).sum())  # a prior that moves does not telescope

    def log_prior(self, near: Tensor) -> Tensor:
        """The log-prior [E, …] from the log-weights [C, …] by nearness."""
        prior = self.log_prior_E.double().view(-1, *[1] * (near.dim() - 1)).repeat(1, *near.shape[1:])
        prior[self._places_C] = near + self._log_share
        return prior

    def _looked_at(self, distances: Distances | None) -> Distances | None:
        return self._nearness.distances_or_raise(distances) if self._nearness else None

    def _weighed(self, logprobs_ENT: Tensor, looked_at: Distances | None, blocks: range) -> Tensor:
        seen_ENT = self.seen(logprobs_ENT)
        if self._nearness is None or looked_at is None:
            return self.weigh(seen_ENT, self.log_prior_E[:, None, None])
        near_CNT = self._nearness.nearness_weights(looked_at, blocks, logprobs_ENT.shape[2])
        return self.weigh(seen_ENT, self.log_prior(near_CNT))


class ClusterPosteriorStream(PosteriorStream):
    """The posterior on one growing text, and that text."""

    def __init__(self, gate: ClusterPosteriorGate, belief: Belief, nearness: ClusterStream) -> None:
        super().__init__(gate, belief)
        self._prior, self._nearness = gate.log_prior, nearness

    def log_weights(self) -> Tensor:
        return self._gate.weigh(self.belief.evidence_E, self._prior(self._nearness.log_weights()))

    def begin(self, token: int) -> None:
        """Text, and no evidence."""
        self._nearness.begin(token)

    def observe(self, logprobs_E: Tensor, token: int) -> None:
        super().observe(logprobs_E, token)
        self._nearness.observe(logprobs_E, token)
