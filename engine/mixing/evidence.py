"""What a posterior uses of the text so far: how long it remembers, and how much it trusts it.

    E_t(j) = Σ_{s<t} decay^(t−1−s) · log p(x_s | x_<s, D=j),   so that E ← decay · E + log p after every token
    w_t(j) ∝ prior_j · exp(power · E_t(j) + slow_power · E'_t(j)),   E' as E with `slow_decay`

`decay` 1 and `power` 1 are the DEMix paper's reading (`prefix`), `decay` 0 and `power` 1 its released code's
(`last_token`). Between them evidence forgets: with a decay d it is that of the last 1 / (1 − d) tokens or so. A power
below 1 tempers it: tokens are not independent, and experts are too sure. A power of 0 leaves the prior. Slow evidence
next to it tells of the text as a whole what the last few tokens do not; without a power, its default, there is none.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.config import Checked, Evidence, knob
from engine.errors import EngineError


@dataclass(frozen=True)
class EvidenceRule(Checked):
    """How evidence decays over past tokens, and how strongly it counts."""

    decay: float = knob(
        1.0,
        "Fraction of the evidence kept per token: 1 keeps all (prefix), 0 only the last token's.",
        title="Evidence: decay at each token",
        ge=0,
        le=1,
    )
    power: float = knob(
        1.0,
        "Exponent of the likelihood: below 1 the posterior trusts the evidence less (paper: 1; 0: only the prior).",
        title="Evidence: power",
        ge=0,
        le=100,
    )
    slow_decay: float = knob(
        1.0,
        "The same of slow evidence, which is added: with a decay near 1 it tells of the text as a whole.",
        title="Slow evidence: decay at each token",
        ge=0,
        le=1,
    )
    slow_power: float = knob(
        0.0, "Exponent of slow evidence; 0: there is none.", title="Slow evidence: power", ge=0, le=100
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.slow_power:
            object.__setattr__(self, "slow_decay", 1.0)  # of nothing: rules that are alike are equal

    @property
    def words(self) -> str:
        """`decay 0.9, power 0.3`, and slow evidence if there is any."""
        slow = f", slow decay {self.slow_decay:g}, slow power {self.slow_power:g}" if self.slow_power else ""
        return f"decay {self.decay:g}, power {self.power:g}{slow}"


AnyEvidence = Evidence | EvidenceRule
READINGS: dict[Evidence, EvidenceRule] = {"prefix": EvidenceRule(1.0, 1.0), "last_token": EvidenceRule(0.0, 1.0)}


def rule_of(evidence: AnyEvidence) -> EvidenceRule:
    """The decay and the power, also of a reading that is given by its name."""
    return evidence if isinstance(evidence, EvidenceRule) else READINGS[evidence]


def name_of_reading(evidence: AnyEvidence | Mapping[str, Any]) -> AnyEvidence:
    """The name of a reading that has one, so that it is stored in one form; also from a rule's JSON.

    Raises EngineError for another name, and for numbers out of bounds.
    """
    if isinstance(evidence, Mapping):
        evidence = _from_json(evidence)
    if isinstance(evidence, EvidenceRule):
        return next((name for name, rule in READINGS.items() if rule == evidence), evidence)
    if evidence not in READINGS:
        raise EngineError(
            f"There is no evidence “{evidence}”.", f"Give {' or '.join(READINGS)}, or a decay and a power."
        )
    return evidence


def _from_json(data: Mapping[str, Any]) -> EvidenceRule:
    known = [one.name for one in fields(EvidenceRule)]
    if unknown := sorted(data.keys() - set(known)):
        raise EngineError(
            f"Evidence has no setting {', '.join(f'“{name}”' for name in unknown)}.", f"It has: {', '.join(known)}."
        )
    return EvidenceRule(**data)


def change_evidence(before: AnyEvidence, change: Any) -> Any:
    """Evidence after a change from a request: of only a decay or a power, the others stay as they are."""
    return {**asdict(rule_of(before)), **change} if isinstance(change, Mapping) else change
