"""Answers about what adding, adapting and removing experts changed. All perplexities are per token."""

from __future__ import annotations

from pydantic import Field

from engine.mixing.evidence import AnyEvidence
from engine.text.split_names import HeldOutSplit
from workbench.answers.base import Answer


class DomainChange(Answer):
    """One domain before and after; a change above 0 is forgetting."""

    domain: str
    role: str
    is_target: bool = Field(description="Whether the later model was adapted to it.")
    num_tokens: int
    block_size: int
    before: float
    after: float
    change_percent: float


class MeanChange(Answer):
    """The mean of the changes of some domains, each of the same weight."""

    num_domains: int
    change_percent: float | None


class Forgetting(Answer):
    """How the perplexities of two models differ on each domain."""

    before: str
    after: str
    split: HeldOutSplit
    domains: list[DomainChange]
    averages: dict[str, MeanChange] = Field(description="Of the targets (`target`), and by role of the others.")


class DomainRemoval(Answer):
    """A domain with an expert, without it, and without the domain from the start (+Expert, –Expert, –Domain)."""

    domain: str
    num_tokens: int
    block_size: int
    with_expert: float | None
    without_expert: float | None
    without_domain: float | None
    why: str = Field(description="What keeps a number from being known.")


class ExpertRemoval(DomainRemoval):
    """The removal of an expert, on its own domain."""

    expert: str
    not_removed: str = Field(description="What of its domain stays in the mixture.")


class RemovalTable(Answer):
    """What removing each expert of a mixture costs."""

    mixture: str
    split: HeldOutSplit
    evidence: AnyEvidence
    num_blocks: int
    rows: list[ExpertRemoval]


class BesideParent(Answer):
    """A single expert and its single parent on one of the expert's domains."""

    domain: str
    expert: float
    parent: float | None = Field(description="None where it was not scored on the same tokens.")
