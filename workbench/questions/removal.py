"""Removal (DEMix §7, table 7) from stored scores: with an expert, without it, and without its domain from the start.

Every mixture of the comparison weighs its own experts by a cached prior, estimated on exactly the dev blocks asked for
of the domain that is scored; that of the mixture without the expert is estimated without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from sqlalchemy.orm import Session

from engine.config import PAPER_BLOCKS
from engine.errors import MixtureError
from engine.mixing.evidence import AnyEvidence
from engine.text.split_names import HeldOutSplit
from workbench.analysis.changes.retrained_baselines import Retrained, retrained_without, what_stays
from workbench.analysis.scores import describe_unscored, load_counted, load_scores, shared_scores
from workbench.answers.base import Answer
from workbench.answers.cards import ReportCard
from workbench.errors import NotFoundError
from workbench.formatting.number_format import change, number, percent, perplexity, share
from workbench.questions.question import Evidence, MixtureName, Question
from workbench.registry.corpora import domain_row
from workbench.registry.experts import ancestors, parts_of
from workbench.registry.mixtures import member_named, mixture_row, taking_part
from workbench.registry.reports import list_reports
from workbench.schema.names import find_row
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.store.storage import Storage

KIND = "removal"
COLUMNS = ("with_expert", "without_expert", "without_domain")  # the paper's +Expert, –Expert, –Domain


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


@dataclass(frozen=True)
class Sides:
    """The experts (in the mixtures' order) of each column; no `retrained` where –Domain is left out."""

    domain: Domain
    with_expert: tuple[Expert, ...]
    without_expert: tuple[Expert, ...]
    retrained: Retrained | None = None

    @property
    def without_domain(self) -> tuple[Expert, ...]:
        """The experts of the third column; none where nothing was retrained."""
        return self.retrained.experts if self.retrained else ()

    def heirs(self) -> list[str]:
        """The remaining experts that were trained on the domain or derive from the removed expert."""
        (removed,) = set(self.with_expert) - set(self.without_expert)
        return [
            one.name
            for one in self.without_expert
            if one.domain_id == removed.domain_id or removed in ancestors(one) or removed.id in parts_of(one)
        ]


@dataclass(frozen=True)
class RemovalColumn:
    """A mixture on a domain: its perplexity, and the share of each expert (by id) in its prior."""

    perplexity: float
    prior: Mapping[str, float]


@dataclass(frozen=True)
class RemovalRow:
    """All columns on the same tokens of one domain; `why` says what keeps one from being known."""

    domain: str
    num_tokens: int = 0
    block_size: int = 0
    with_expert: RemovalColumn | None = None
    without_expert: RemovalColumn | None = None
    without_domain: RemovalColumn | None = None
    why: str = ""

    def answer(self) -> DomainRemoval:
        """The perplexities; None where a column is not known."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        known = {name: column.perplexity if column else None for name, column in columns.items()}
        return DomainRemoval.from_fields(self, **known)


class RemovalRequest(Question[RemovalTable]):
    """What removing each expert costs on its own domain, from stored scores: +Expert, –Expert, –Domain."""

    path = "removal"
    operation = "removal_table"
    rows = "rows"

    mixture: MixtureName
    retrained: dict[str, str] = Field(
        default_factory=dict, description="By domain, the mixture that was trained without it (the paper's –Domain)."
    )
    evidence: Evidence = "prefix"
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Dev blocks for each cached prior, exactly (paper: 100).")
    split: HeldOutSplit = Field("test", description="Which held-out part; priors are always of dev.")

    def answer(self, session: Session, storage: Storage) -> RemovalTable:
        """Table 7: every expert that takes part, on its own domain; nothing is computed again."""
        members = [expert for expert in taking_part(mixture_row(session, self.mixture)) if expert.domain is not None]
        homes = [expert.domain.name for expert in members if expert.domain is not None]
        for domain in self.retrained:
            if domain not in homes:
                raise NotFoundError("domain of an expert", domain, homes, where=f"in “{self.mixture}”")
        rows = []
        for expert, home in zip(members, homes, strict=True):
            sides = sides_of(session, self.mixture, expert.name, self.retrained.get(home))
            row = removal_row(
                session, storage, sides, home, split=self.split, evidence=self.evidence, num_blocks=self.num_blocks
            )
            not_removed = what_stays(session, self.mixture, expert)
            rows.append(ExpertRemoval(**row.answer().model_dump(), expert=expert.name, not_removed=not_removed))
        return RemovalTable.from_fields(self, rows=rows)


QUESTION = RemovalRequest


def sides_of(session: Session, mixture: str, expert: str, retrained: str | None = None) -> Sides:
    """The experts of each column. The removed expert counts as active; the others are as in the mixture.

    Raises NotFoundError or MixtureError when there is nothing to compare.
    """
    row = mixture_row(session, mixture)
    removed = member_named(row, expert).expert
    if removed.domain is None:
        raise MixtureError(
            f"“{expert}” cannot be compared: it was trained on several domains.", "Choose another expert."
        )
    members = taking_part(row, removed)
    left = tuple(member for member in members if member is not removed)
    if not left:
        raise MixtureError(
            f"“{mixture}” has no other active expert with a weight above zero than “{expert}”.",
            "Switch another one on, or choose a mixture that holds more.",
        )
    never = retrained_without(session, retrained, removed) if retrained else None
    return Sides(removed.domain, members, left, never)


def removal_row(
    session: Session,
    storage: Storage,
    sides: Sides,
    domain: str,
    *,
    split: HeldOutSplit = "test",
    block_size: int | None = None,
    evidence: AnyEvidence = "prefix",
    num_blocks: int = PAPER_BLOCKS,
) -> RemovalRow:
    """All columns on one domain, on the longest text that was scored under all of them (of a block size, if given)."""
    domain_id, never = domain_row(session, domain).id, sides.without_domain
    why = ""
    scored = shared_scores(session, [*sides.with_expert, *never], domain_id, split, block_size)
    if scored is None and never:
        why, never = f"The retrained mixture is not scored on the same {split} text.", ()
        scored = shared_scores(session, sides.with_expert, domain_id, split, block_size)
    if scored is None:
        names = {expert.id: expert.name for expert in sides.with_expert}
        unscored = describe_unscored(session, names, [domain], split)
        return RemovalRow(domain, why=f"The {split} text is not scored under every expert that takes part.{unscored}")
    num_tokens, size = next((one.num_tokens, one.block_size) for one in scored.values())
    columns: dict[str, RemovalColumn] = {}
    for name, experts in zip(COLUMNS, (sides.with_expert, sides.without_expert, never), strict=True):
        priors = shared_scores(session, experts, domain_id, "dev", size, num_blocks)
        if priors is None:
            why = f"Fewer than {num_blocks} dev blocks of {size} tokens are scored under every expert that takes part."
        elif experts:
            columns[name] = _column(storage, experts, scored, priors, num_blocks, evidence)
    return RemovalRow(domain, num_tokens, size, **columns, why=why)


def removal_reports(session: Session, expert: str) -> list[ReportCard]:
    """The certificates of an expert's removal, the newest first; a deleted expert is matched by name."""
    there = find_row(session, Expert, expert)
    reports = list_reports(session, kind=KIND, about_id=there.id if there else None)
    return reports if there else [report for report in reports if report.findings["expert"] == expert]


def verdict(findings: Mapping[str, Any]) -> str:
    """A sentence with the verdict of a certificate, from its findings."""
    own, identity = findings["perplexity"][0], findings["identity"]
    heirs = ", ".join(f"“{name}”" for name in findings["heirs"])
    sentences = (
        _identity_sentence(findings, identity),
        f"Experts of its domain or copied from it remain: {heirs}." if heirs else "",
        _cost_sentence(own),
        _extraction_sentence(findings["extraction"]),
    )
    return " ".join(filter(None, sentences))


def _identity_sentence(findings: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    mixture, expert = findings["mixture"], findings["expert"]
    if identity["holds"]:
        return (
            f"“{mixture}” without “{expert}” is bit-identical to the mixture that never loaded it "
            f"({identity['num_numbers']:,} log-probabilities compared)."
        )
    if identity["num_not_finite"]:
        return (
            f"NOT certified: {identity['num_not_finite']:,} of {identity['num_numbers']:,} log-probabilities of "
            f"“{mixture}” without “{expert}” are not finite, so nothing is proven."
        )
    return (
        f"NOT certified: “{mixture}” without “{expert}” differs from the mixture that never loaded it: "
        f"{identity['num_different']:,} of {identity['num_numbers']:,} log-probabilities differ."
    )


def _cost_sentence(measured: Mapping[str, Any]) -> str:
    before, after, never = (measured[name] for name in COLUMNS)
    rise = change(100 * (after / before - 1))
    sentences = f"Perplexity on {measured['domain']} goes from {perplexity(before)} to {perplexity(after)} ({rise})"
    return f"{sentences}." if never is None else f"{sentences}; trained without the domain it is {perplexity(never)}."


def _extraction_sentence(extraction: Mapping[str, Any]) -> str:
    means, change = extraction["means"], extraction["changes"]["without_expert"]["match"]
    with_it, without = (percent(100 * means[name]["match"]["mean"]) for name in COLUMNS[:2])
    low, high = (number(change[bound] * 100, 1, signed=True) for bound in ("low", "high"))
    bounds = f"{share(extraction['confidence'])} interval of the change: {low} to {high} percentage points"
    shown = "" if change["low"] > 0 or change["high"] < 0 else ", so no change is shown"
    return (
        f"Going on from its training text, {with_it} of the tokens are the true ones with it and {without} without "
        f"({bounds}{shown})."
    )


def _column(
    storage: Storage,
    experts: Iterable[Expert],
    scored: Mapping[str, Evaluation],
    dev: Mapping[str, Evaluation],
    num_blocks: int,
    evidence: AnyEvidence,
) -> RemovalColumn:
    from engine.inference.scores import full_blocks, mixed_perplexity
    from engine.mixing.posterior import PosteriorGate, estimate_prior

    ids = [expert.id for expert in experts]
    uniform = PosteriorGate([1.0] * len(ids), evidence)
    shares = estimate_prior(uniform, full_blocks(*load_scores(storage, [dev[id] for id in ids])), num_blocks).tolist()
    cached = PosteriorGate(shares, evidence)
    evaluations = [scored[id] for id in ids]
    counted_X = load_counted(storage, evaluations[0])
    mixed = mixed_perplexity(cached, *load_scores(storage, evaluations), counted_X=counted_X)
    return RemovalColumn(mixed, dict(zip(ids, shares, strict=True)))
