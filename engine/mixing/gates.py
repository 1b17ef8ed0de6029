"""The one place that chooses a gate by name."""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import GateConfig
from engine.errors import MixtureError
from engine.mixing.base import Gate
from engine.mixing.cluster import ClusterGate, Routing
from engine.mixing.cluster_posterior import ClusterPosteriorGate
from engine.mixing.fixed import FixedGate
from engine.mixing.posterior import PosteriorGate, UpdatingGate


def make_gate(config: GateConfig, weights: Sequence[float], routing: Routing | None = None) -> Gate:
    """The gate of a config; `weights` is its prior, or the fixed weights themselves.

    `routing` says which cluster each expert is of. Raises MixtureError where a gate needs it and there is none.
    """
    if config.kind == "fixed":
        return FixedGate(weights, config.top_k)
    if config.kind == "updating":
        return UpdatingGate(
            weights,
            config.evidence,
            config.top_k,
            newest_weight=config.newest_weight,
            update_every=config.update_every,
        )
    if config.kind == "cluster":
        return ClusterGate(
            weights,
            _required(routing),
            temperature=config.temperature,
            distance_power=config.distance_power,
            top_k=config.top_k,
            freeze_after=config.freeze_after,
        )
    if config.kind == "cluster-posterior":
        return ClusterPosteriorGate(
            weights,
            _required(routing),
            config.evidence,
            config.top_k,
            temperature=config.temperature,
            distance_power=config.distance_power,
            freeze_after=config.freeze_after,
        )
    return PosteriorGate(weights, config.evidence, config.top_k)


def _required(routing: Routing | None) -> Routing:
    if routing is None:
        raise MixtureError(
            "The cluster gate must know the cluster of each expert, but does not.",
            "Name a clustering, or another gate.",
        )
    return routing
