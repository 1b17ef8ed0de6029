"""A posterior whose prior learns as the text goes on (DEMix §5.1, Eq. 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import PAPER_NEWEST_WEIGHT, knob
from engine.mixing.gate_type import GateType, builder
from engine.mixing.gates.posterior import EvidenceConfig


@dataclass(frozen=True)
class UpdatingGateConfig(EvidenceConfig):
    """A posterior, and how its prior learns."""

    kind: Literal["updating"] = "updating"
    newest_weight: float = knob(
        PAPER_NEWEST_WEIGHT,
        "Share of the newest block in the prior, 1 − λ (paper: 0.7; code: 0.3); 0: all blocks count alike.",
        ge=0,
        le=1,
    )
    update_every: int = knob(
        256, "Tokens after which the prior learns (paper: 1024), in generation and in scores alike.", ge=1
    )


GATE = GateType(
    "Updating posterior",
    "as posterior, with a prior that learns as the text goes on",
    UpdatingGateConfig,
    builder("engine.mixing.posterior:UpdatingGate"),
)
