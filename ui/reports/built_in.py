"""The sorts of report that jobs of the workbench write: certificates, classifications and overlaps of domains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, TypedDict

from ui.present.pages import SHARED_TEXT, SPECIALIZATION
from ui.present.text.reports import (
    accuracy_rows,
    change_rows,
    cluster_rows,
    describe_extraction,
    describe_new_expert,
    describe_priors,
    describe_settings,
    extraction_rows,
    folder_rows,
    perplexity_rows,
    task_rows,
)
from ui.reports.picture import Claim, Picture
from ui.reports.report_type import Part, ReportType, Reproducible
from workbench.formatting.number_format import change, perplexity, pluralize, share
from workbench.kinds.kind import ResultLink
from workbench.questions.removal import DomainRemoval


class AdditionFindings(Reproducible):
    """The certificate of an addition: no other file changed, and what each domain gained."""

    expert: str
    mixture: str
    ok: bool
    sentence: str
    num_tensors: int
    domains: list[dict[str, Any]]  # perplexities before and after
    folders: list[dict[str, Any]]  # that were hashed


def _describe_addition(findings: AdditionFindings) -> Iterator[Part]:
    yield ""
    yield change_rows(findings) or "The certificate has no perplexities."
    if compared := describe_new_expert(findings):
        yield compared
    yield ""
    yield folder_rows(findings) or "There were no files before."
    yield from _describe_origin(findings)


def _picture_addition(findings: AdditionFindings) -> Picture:
    """The unchanged files, what the new domains gained, and the most that another lost."""
    title = f"{findings['expert']} was added to {findings['mixture']}"
    note = f"Perplexity of the mixture without the expert and with it, on {findings.get('split', 'test')} text."
    if not findings["ok"]:
        return Picture(title, False, [Claim("Files changed", findings["sentence"])], "", findings["sentence"])
    num_files = sum(folder["num_files"] for folder in findings["folders"] if folder["recorded_before"])
    tensors = pluralize(findings["num_tensors"], "tensor")
    unchanged = Claim(pluralize(num_files, "file"), f"and {tensors} that were there before are unchanged, to the bit")
    new = [one for one in findings["domains"] if one["is_new"]]
    old = [one for one in findings["domains"] if not one["is_new"]]
    claims = [unchanged, *map(_claim_of, new[:1] if old else new)]
    short = [f"{change(one['change_percent'])} on {one['domain']}" for one in new]
    if old:
        worst = max(old, key=lambda one: one["change_percent"])
        most = f"at most {change(worst['change_percent'])}"
        claims.append(
            Claim(most, f"on {pluralize(len(old), 'other domain')} (n = {sum(o['num_tokens'] for o in old):,})")
        )
        short.append(f"{most} on {pluralize(len(old), 'other domain')}")
    numbers = f"; perplexity {', '.join(short)}" if short else ""
    sentence = f"{title}: {pluralize(num_files, 'file')} and {tensors} unchanged{numbers}."
    return Picture(title, True, claims, note if short else "", sentence)


def _claim_of(one: dict[str, Any]) -> Claim:
    numbers = f"from {perplexity(one['before'])} to {perplexity(one['after'])}, n = {one['num_tokens']:,} tokens"
    return Claim(change(one["change_percent"]), f"perplexity on {one['domain']}: {numbers}")


def _picture_removal(findings: RemovalFindings) -> Picture:
    """The equality with a mixture that never loaded the expert, and what its own domain loses."""
    mixture, expert, own = findings["mixture"], findings["expert"], findings["perplexity"][0]
    title, identity = f"{expert} was removed from {mixture}", findings["identity"]
    compared = f"of {identity['num_numbers']:,} log-probabilities differ from a mixture that never loaded it"
    claims = [Claim(f"{identity['num_different']:,}", compared)]
    if own["with_expert"] is not None and own["without_expert"] is not None:
        rise = 100 * (own["without_expert"] / own["with_expert"] - 1)
        numbers = {"before": own["with_expert"], "after": own["without_expert"], "change_percent": rise}
        claims.append(_claim_of({**own, **numbers}))
    note = (
        f"Priors from {findings['num_blocks']} dev blocks; evidence: {findings['evidence']}. {findings['not_removed']}"
    )
    return Picture(title, findings["ok"], claims, note, findings["sentence"])


def _describe_origin(findings: Reproducible) -> Iterator[Part]:
    if reproducible_from := findings.get("reproducible_from"):
        yield ""
        yield f"Reproducible from: {reproducible_from}"


class RemovalFindings(Reproducible):
    """The certificate of a removal: the mixture without an expert, what it costs, and the extraction test."""

    expert: str
    mixture: str
    ok: bool
    sentence: str
    identity: dict[str, Any]  # how many log-probabilities were compared, and how many differ
    num_blocks: int
    evidence: str
    perplexity: list[dict[str, Any]]  # rows of DomainRemoval, the expert's own domain first
    extraction: dict[str, Any]
    not_removed: str


def _describe_removal(findings: RemovalFindings) -> Iterator[Part]:
    rows = [DomainRemoval.model_validate(row) for row in findings["perplexity"]]
    yield ""
    yield describe_priors(findings)
    yield perplexity_rows(rows) or "No rows."
    yield from (f"{row.domain}: {row.why}" for row in rows if row.why)
    yield ""
    yield describe_extraction(findings["extraction"])
    yield extraction_rows(findings["extraction"]) or "No rows."
    yield ""
    yield findings["not_removed"]
    yield from _describe_origin(findings)


class ClassificationFindings(TypedDict):
    """A few-shot classification: how often each routing was right, and which clusters it used."""

    sentence: str
    rows: list[dict[str, Any]]  # one for each routing: shares of right answers by task, and on average
    tasks: list[dict[str, Any]]
    notes: list[str]
    num_shots: int
    num_seeds: int
    normalise: str
    confidence: float


def _describe_classification(findings: ClassificationFindings) -> Iterator[Part]:
    yield ""
    yield accuracy_rows(findings) or "The report has no rows."
    yield describe_settings(findings)
    yield ""
    if rows := cluster_rows(findings):
        yield "Clusters with the greatest mean weight of their experts:"
        yield rows
        yield ""
    yield task_rows(findings) or "The report has no rows."
    yield from findings["notes"]


class OverlapFindings(TypedDict):
    """The domains, and a symmetric matrix of the share of frequent bigrams that two of them have in common."""

    domains: list[str]
    overlap: list[list[float]]


def _overlap_sentence(findings: OverlapFindings) -> str:
    pairs = combinations(enumerate(findings["domains"]), 2)
    most, first, second = max((findings["overlap"][i][j], a, b) for (i, a), (j, b) in pairs)
    return f"{first} and {second} have most in common: {share(most)} of their frequent bigrams."


def _describe_overlap(findings: OverlapFindings) -> Iterator[Part]:
    names = findings["domains"]
    yield "The share of frequent bigrams that two domains have in common: 0 is none, 1 is all."
    yield [
        {"domain": name, **dict(zip(names, row, strict=True))}
        for name, row in zip(names, findings["overlap"], strict=True)
    ]
    yield "Next to the specialization of a mixture: workbench evaluate affinity MIXTURE"


_DRAW = "ui.studio.experts.certificates:"
REPORT: tuple[ReportType[Any], ...] = (
    ReportType(
        name="addition",
        title="Additions",
        findings=AdditionFindings,
        describe=_describe_addition,
        draw=f"{_DRAW}show_addition",
        picture=_picture_addition,
    ),
    ReportType(
        name="classification",
        title="Classifications",
        findings=ClassificationFindings,
        describe=_describe_classification,
        draw=f"{_DRAW}show_classification",
    ),
    ReportType(
        name="overlap",
        title="Overlaps of domains",
        findings=OverlapFindings,
        sentence=_overlap_sentence,
        describe=_describe_overlap,
        link=ResultLink(
            SPECIALIZATION.address, "See it next to the specialization", lambda _: {"specialization.view": SHARED_TEXT}
        ),
    ),
    ReportType(
        name="removal",
        title="Removals",
        findings=RemovalFindings,
        describe=_describe_removal,
        draw=f"{_DRAW}show_removal_report",
        picture=_picture_removal,
    ),
)
