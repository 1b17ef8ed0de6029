"""Answers about the evidence of a mixture's posterior: which decay and power, and what they gain."""

from __future__ import annotations

from pydantic import Field

from engine.mixing.evidence import EvidenceRule
from workbench.answers.base import Answer


class Change(Answer):
    """A change of perplexity in % on these domains' text, with its interval of 95 % if any. Below 0 is a gain."""

    value: float
    low: float | None
    high: float | None


class EvidenceCalibration(Answer):
    """The setting that fits dev text of a mixture's training domains best, beside the setting of now."""

    mixture: str
    experts: list[str]
    domains: list[str] = Field(description="The training domains whose dev text it was fitted on.")
    missing: list[str] = Field(description="Training domains whose dev text is not scored under every expert.")
    now: EvidenceRule
    best: EvidenceRule
    keeps: bool = Field(description="Whether the setting of now is kept: no gain, or one that may be chance.")
    decays: list[float]
    powers: list[float]
    change: list[list[float]] = Field(
        description="Change of perplexity in % against now, by decay (rows) and power (columns). "
        "The mean over domains, each with all experts and without its own."
    )
    gain: Change = Field(description="Of both; of each domain by the setting that is best on the others.")
    gain_present: Change = Field(description="With all experts, as on text of the training domains.")
    gain_left_out: Change | None = Field(
        description="Without the experts that a domain trained, as if it were novel; None with less than two others."
    )
    too_short: list[str] = Field(
        [], description="Domains whose dev text is a single block: changes have no interval, and nothing is proposed."
    )
    seconds: float
