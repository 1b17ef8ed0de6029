"""Weights by Bayes' rule (DEMix §5.1, Eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import knob
from engine.mixing.evidence import AnyEvidence, name_of_reading
from engine.mixing.gate_type import GateConfig, GateType, builder


@dataclass(frozen=True)
class EvidenceConfig(GateConfig):
    """The settings of a gate that follows the evidence."""

    evidence: AnyEvidence = knob(
        "prefix",
        "What a posterior sees: the whole prefix (paper) or the last token (code); or, as a decay and a power, what is "
        "between them.",
        title="Evidence: what the posterior sees",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", name_of_reading(self.evidence))
        super().__post_init__()


@dataclass(frozen=True)
class PosteriorGateConfig(EvidenceConfig):
    """A posterior under a prior that stays."""

    kind: Literal["posterior"] = "posterior"


GATE = GateType(
    "Posterior",
    "by Bayes' rule from the text so far",
    PosteriorGateConfig,
    builder("engine.mixing.posterior:PosteriorGate"),
)
