"""Answers that compare experts: learning vs. forgetting, training histories, affinity."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.text.split_names import HeldOutSplit
from workbench.answers.base import Answer
from workbench.answers.perplexities import DomainMeasure
from workbench.kinds.analysis.evaluate import Evaluate

Metric = Literal["accuracy", "perplexity"]
ByDomain = dict[str, float | None]


class RetentionRow(Answer):
    """An expert's scores on the targets and on the retained domain; None without a score."""

    expert: str
    method: str
    is_seed: bool = Field(description="Whether the others began as copies of it.")
    num_parts: int
    num_parameters: int = Field(description="Its own, without its base.")
    total_parameters: int | None = Field(None, description="With its base; null where its seed model is not known.")
    accuracy: ByDomain
    perplexity: ByDomain
    learned: dict[Metric, float | None] = Field(description="Mean over the targets (of perplexities the geometric).")
    kept: dict[Metric, float | None]
    is_ahead: dict[Metric, bool | None] = Field(description="Whether no other has learned and kept more.")

    def on(self, domain: str) -> dict[Metric, float | None]:
        """Its numbers on one domain."""
        return {"accuracy": self.accuracy[domain], "perplexity": self.perplexity[domain]}


class MissingScores(Answer):
    """Scores that are missing for one reason, and the command that makes them."""

    experts: list[str]
    domains: list[str]
    why: str
    command: str


class SuggestedEvaluation(Answer):
    """An evaluation of all compared experts, with one number of tokens."""

    spec: Evaluate
    command: str


class Retention(Answer):
    """Experts on the target domains and on the retained domain."""

    retain: str
    targets: list[str]
    split: HeldOutSplit
    rows: list[RetentionRow]
    left_out: list[str] = Field(description="Experts with another tokenizer.")
    measures: list[DomainMeasure] = Field(description="Of the domains that are scored.")
    missing: list[MissingScores]
    evaluations: list[SuggestedEvaluation] = Field(description="Evaluations after which nothing is missing.")


class RetentionDefaults(Answer):
    """Domains to choose from in a comparison of experts."""

    retain: list[str] = Field(description="All domains, the likeliest to be retained first.")
    targets: list[str]


class DomainHistory(Answer):
    """The evaluations of a training on one domain, step by step."""

    domain: str
    retained: bool = Field(description="Evaluated, but not trained on.")
    steps: list[int]
    losses: list[float] = Field(description="Held-out loss (nats per token).")
    gates: list[dict[str, float]] = Field(description="Mean weights of backbone and parts; empty unless of MoDE.")


class TrainingHistory(Answer):
    """How the training of an expert went."""

    expert: str
    job: str
    state: str
    domains: list[DomainHistory]


class AffinityCell(Answer):
    """An expert on a domain: its ratio to the domain's own expert, and the overlap of the domain with its own."""

    expert: str
    domain: str
    home: str = Field(description="The expert's own domain; empty if trained on several.")
    ratio: float
    overlap: float | None


class Correlation(Answer):
    """Pearson's r over cells, its t statistic, and the two-sided p of no correlation."""

    r: float
    t: float
    p: float
    num_cells: int


class Affinity(Answer):
    """Specialization ratios beside the overlap of domains, and their correlation."""

    cells: list[AffinityCell]
    without_homes: Correlation | None
    with_homes: Correlation | None = Field(description="As in the paper's figure.")
    why_not: str = Field(description="Why there is no correlation.")
    changed: list[str] = Field(description="Domains whose text changed since their overlap was measured.")
    unmeasured: list[str]
    unpaired: list[str] = Field(description="Domains that were never measured together.")
    report: str | None
    measured_at: float | None
