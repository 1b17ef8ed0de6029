"""The given weights at every token: `engine.mixing.base.FixedGate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.mixing.gate_type import GateConfig, GateType

if TYPE_CHECKING:
    from engine.mixing.base import Gate
    from engine.mixing.cluster import Routing


@dataclass(frozen=True)
class FixedGateConfig(GateConfig):
    """The settings of a gate with fixed weights: only those that every gate has."""

    kind: Literal["fixed"] = "fixed"


def _build(config: FixedGateConfig, weights: Sequence[float], _routing: Routing | None) -> Gate:
    from engine.mixing.base import FixedGate

    return FixedGate(weights, config.top_k)


GATE = GateType("Fixed weights", "the given weights", FixedGateConfig, _build, is_constant=True)
