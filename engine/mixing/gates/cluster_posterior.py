"""A posterior whose prior follows the distances to clusters: `engine.mixing.cluster.ClusterPosteriorGate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.mixing.gate_type import GateType
from engine.mixing.gates.cluster import DistanceConfig
from engine.mixing.gates.posterior import EvidenceConfig

if TYPE_CHECKING:
    from engine.mixing.base import Gate
    from engine.mixing.cluster import Routing


@dataclass(frozen=True)
class ClusterPosteriorGateConfig(EvidenceConfig, DistanceConfig):
    """Evidence and distances together."""

    kind: Literal["cluster-posterior"] = "cluster-posterior"


def _build(config: ClusterPosteriorGateConfig, weights: Sequence[float], routing: Routing) -> Gate:
    from engine.mixing.cluster import ClusterPosteriorGate

    return ClusterPosteriorGate(
        weights,
        routing,
        config.evidence,
        config.top_k,
        temperature=config.temperature,
        distance_power=config.distance_power,
        freeze_after=config.freeze_after,
    )


GATE = GateType(
    "Posterior with clusters",
    "by Bayes' rule, with the distance to clusters as the prior of the experts that have one",
    ClusterPosteriorGateConfig,
    _build,
    weighs_unclustered=True,
)
