"""Weights by the distance of the text to each expert's cluster (C-BTM §2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import MOST, PAPER_DISTANCE_POWER, PAPER_TEMPERATURE, knob
from engine.mixing.gate_type import ClusteringGateConfig, GateType, builder


@dataclass(frozen=True)
class DistanceConfig(ClusteringGateConfig):
    """The settings of a gate that weighs by distances to clusters."""

    temperature: float = knob(
        PAPER_TEMPERATURE,
        "How soft the choice between clusters is (paper: 0.1; clusters of standardised vectors need 1 to 3); lower is "
        "sharper.",
        ge=1e-12,
        le=1e6,
    )
    distance_power: float = knob(
        PAPER_DISTANCE_POWER,
        "The power of the distance to a cluster (paper: 2; code: 4).",
        title="Power of the distance",
        gt=0,
        le=100,
    )
    freeze_after: int | None = knob(
        None,
        "Tokens of a text after which distances to clusters stay (paper: after half of a document nothing is lost); "
        "empty: never.",
        title="Tokens after which weights stay",
        ge=1,
        le=MOST,
    )


@dataclass(frozen=True)
class ClusterGateConfig(DistanceConfig):
    """Only distances."""

    kind: Literal["cluster"] = "cluster"


GATE = GateType(
    "Clusters",
    "by the distance of the text so far to each expert's cluster",
    ClusterGateConfig,
    builder("engine.mixing.cluster:ClusterGate"),
)
