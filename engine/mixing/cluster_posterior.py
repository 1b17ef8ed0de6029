"""A posterior with cluster weights as its prior: Eq. 3 of C-BTM inside Eq. 7 of DEMix. Not in the papers.

    w_j ∝ prior_j(x_<t) · p(x_<t | D=j)      (with the evidence as in a posterior: it may forget and be tempered)
    prior_j(x_<t) = P_C · Eq. 3 among the experts of clusters     for an expert of a cluster
                  = π_j                                           for any other

π are the given weights, scaled to sum 1, and P_C is the sum of those of experts with a cluster: distances move weight
between experts with a cluster, evidence between all. Without any cluster it is the posterior; without evidence, and
with a cluster for every expert, it is the cluster gate.
Shapes: E experts, C of them of clusters, N blocks, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.mixing.base import block_chunks
from engine.mixing.cluster import ClusterGate, ClusterStream, Routing
from engine.mixing.combine import mix
from engine.mixing.evidence import AnyEvidence
from engine.mixing.papers import PAPER_DISTANCE_POWER, PAPER_TEMPERATURE
from engine.mixing.posterior import Belief, PosteriorGate, PosteriorStream

if TYPE_CHECKING:
    from engine.clusters.distances import Distances


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

    def start(self, belief: Belief | None = None) -> PosteriorStream:
        """A fresh stream; with a belief one that continues after `begin` was called with every token so far."""
        stream = super().start(belief)
        if self.nearness is None:
            return stream
        return ClusterPosteriorStream(self, stream.belief, self.nearness.start())

    def block(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        frozen = self._frozen(distances)
        return self._weighed(logprobs_ENT, frozen, range(logprobs_ENT.shape[1]))

    def mixed(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> Tensor:
        frozen = self._frozen(distances)
        pieces = (
            mix(self._weighed(some_ENT, frozen, blocks), some_ENT.double())
            for blocks, some_ENT in block_chunks(logprobs_ENT)
        )
        return torch.cat(list(pieces))

    def total(self, logprobs_ENT: Tensor, distances: Distances | None = None) -> float:
        return float(self.mixed(logprobs_ENT, distances).sum())  # the sum does not telescope under a prior that changes

    def log_prior(self, near: Tensor) -> Tensor:
        """The log-prior [E, …] from the cluster gate's log-weights [C, …]."""
        prior = self.log_prior_E.double().view(-1, *[1] * (near.dim() - 1)).repeat(1, *near.shape[1:])
        prior[self.places_C] = near + self._log_share
        return prior

    def _frozen(self, distances: Distances | None) -> Distances | None:
        return self.nearness.distances_or_raise(distances) if self.nearness else None

    def _weighed(self, logprobs_ENT: Tensor, frozen: Distances | None, blocks: range) -> Tensor:
        seen_ENT = self.seen(logprobs_ENT)
        if self.nearness is None or frozen is None:
            return self.weigh(seen_ENT, self.log_prior_E[:, None, None])
        near_CNT = self.nearness.nearness_weights(frozen, blocks, logprobs_ENT.shape[2])
        return self.weigh(seen_ENT, self.log_prior(near_CNT))


class ClusterPosteriorStream(PosteriorStream):
    """The posterior and the cluster weights on one growing text."""

    def __init__(self, gate: ClusterPosteriorGate, belief: Belief, nearness: ClusterStream) -> None:
        super().__init__(gate, belief)
        self._prior, self._nearness = gate.log_prior, nearness

    def log_weights(self) -> Tensor:
        return self._gate.weigh(self._gate.seen_by(self.belief), self._prior(self._nearness.log_weights()))

    def begin(self, token: int) -> None:
        """Reads the token as text; it is no evidence."""
        self._nearness.begin(token)

    def observe(self, logprobs_E: Tensor, token: int) -> None:
        super().observe(logprobs_E, token)
        self._nearness.observe(logprobs_E, token)
