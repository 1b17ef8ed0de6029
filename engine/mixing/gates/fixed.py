"""The given weights at every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.mixing.gate_type import GateConfig, GateType, builder


@dataclass(frozen=True)
class FixedGateConfig(GateConfig):
    """The settings of a gate with fixed weights: only those that every gate has."""

    kind: Literal["fixed"] = "fixed"


GATE = GateType(
    "Fixed weights", "the given weights", FixedGateConfig, builder("engine.mixing.base:FixedGate"), is_constant=True
)
