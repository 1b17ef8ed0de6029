"""A posterior whose prior follows the distances to clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.mixing.gate_type import GateType, builder
from engine.mixing.gates.cluster import DistanceConfig
from engine.mixing.gates.posterior import EvidenceConfig


@dataclass(frozen=True)
class ClusterPosteriorGateConfig(EvidenceConfig, DistanceConfig):
    """Evidence and distances together."""

    kind: Literal["cluster-posterior"] = "cluster-posterior"


GATE = GateType(
    "Posterior with clusters",
    "by Bayes' rule, with the distance to clusters as the prior of the experts that have one",
    ClusterPosteriorGateConfig,
    builder("engine.mixing.cluster:ClusterPosteriorGate"),
    weighs_unclustered=True,
)
