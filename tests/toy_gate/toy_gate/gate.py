"""A gate of another package: the given weights, made sharper or more alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.config import knob
from engine.mixing.gate_type import GateConfig, GateType

if TYPE_CHECKING:
    from engine.mixing.base import Gate
    from engine.mixing.cluster import Routing


@dataclass(frozen=True)
class TemperedGateConfig(GateConfig):
    """The given weights to the power 1 / softness."""

    kind: Literal["tempered"] = "tempered"
    softness: float = knob(2.0, "How alike the weights become: 1 leaves them as they are.", ge=0.1, le=10)


def _build(config: TemperedGateConfig, weights: Sequence[float], _routing: Routing | None) -> Gate:
    from engine.mixing.base import FixedGate

    return FixedGate([weight ** (1 / config.softness) for weight in weights], config.top_k)


GATE = GateType("Tempered weights", "the given weights to the power 1 / softness", TemperedGateConfig, _build)
