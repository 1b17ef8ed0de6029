"""Additions (DEMix §6): the files before an expert was added, and each domain's change in perplexity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import MixtureError
from engine.files import ArtifactRef
from engine.loading.plan import GenerationPlan
from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import perplexity
from workbench.analysis.scores import mixed_perplexity, scored_domains
from workbench.answers.base import Answer
from workbench.answers.cards import ReportCard
from workbench.formatting.number_format import change
from workbench.formatting.number_format import perplexity as perplexity_text
from workbench.registry.experts import domains_of, expert_row
from workbench.registry.mixtures import mixture_row
from workbench.registry.reports import list_reports
from workbench.requests.planning import plan
from workbench.schema.tables import Artifact, Domain, Evaluation, Expert, Mixture
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import Storage

KIND = "addition"


class BesideParent(Answer):
    """A single expert and its single parent on one of the expert's domains."""

    domain: str
    expert: float
    parent: float | None = Field(description="None where it was not scored on the same tokens.")


@dataclass(frozen=True)
class Recorded:
    """A folder around an expert: what it is, its place and hash, and whether that was recorded before the addition."""

    id: str
    what: str
    kept: ArtifactRef
    before: bool


@dataclass(frozen=True)
class Addition:
    """An added expert, the stored folders around it, and the domains that show its effect."""

    expert_id: str
    newcomer: ArtifactRef
    base: Recorded
    others: tuple[Recorded, ...]  # every other expert on the base, in this mixture or not
    beside: tuple[Recorded, ...]  # the mixture's experts on other bases, and those bases
    domains: tuple[str, ...]
    outcome: str = ""  # a sentence about a training that made the expert worse


@dataclass(frozen=True)
class MeasuredChange:
    """Perplexity per token of a domain before and after."""

    domain: str
    num_tokens: int
    before: float
    after: float
    is_new: bool  # the new expert's own domain

    @property
    def percent(self) -> float:
        """The change; negative is better."""
        return (self.after / self.before - 1) * 100


def addition_of(session: Session, storage: Storage, mixture: str, expert: str, split: HeldOutSplit) -> Addition:
    """The folders and domains that a certificate checks.

    Raises MixtureError when the expert was not added to a model, or does not take part together with another expert.
    """
    mixed, row = mixture_row(session, mixture), expert_row(session, expert)
    if not _was_added(row):
        raise MixtureError(
            f"“{row.name}” was not added to an existing model as a copy of one of its experts: it "
            "was trained with its model.",
            "Certify an expert that was added: workbench train expert.",
        )
    _two_plans(session, storage, mixed, row)
    others = session.scalars(
        select(Expert).where(Expert.base_id == row.base_id, Expert.id != row.id).order_by(Expert.name)
    ).all()
    return Addition(
        row.id,
        storage.kept(row.artifact),
        _record_of(storage, row, row.base, "the base"),
        tuple(_record_of(storage, row, one.artifact, f"expert {one.name}") for one in others),
        tuple(_beside(storage, row, [m.expert for m in mixed.members if m.expert.base_id != row.base_id])),
        tuple(_domains(session, mixed, row, split)),
        worse_than_before(row.metrics),
    )


def changes(
    session: Session,
    storage: Storage,
    mixture: str,
    expert: str,
    *,
    split: HeldOutSplit,
    block_size: int,
    max_tokens: int,
) -> list[MeasuredChange]:
    """Each scored domain's perplexity under the mixture without the expert and with it, on the same tokens."""
    row = expert_row(session, expert)
    before, after = _two_plans(session, storage, mixture_row(session, mixture), row)
    scored = scored_domains(session, after, split, block_size=block_size, max_tokens=max_tokens)
    own, rows = domains_of(row), []
    for domain, evaluations in scored.items():
        of_others = [one for one in evaluations if one.expert_id != row.id]  # of the same tokens
        values = [mixed_perplexity(session, storage, *both) for both in ((before, of_others), (after, evaluations))]
        rows.append(MeasuredChange(domain, evaluations[0].num_tokens, values[0], values[1], domain in own))
    return rows


def beside_parent(
    session: Session, expert: str, *, split: HeldOutSplit, block_size: int, max_tokens: int
) -> list[BesideParent]:
    """The single expert and its single parent on the expert's scored domains."""
    row = expert_row(session, expert)
    rows = []
    for domain in domains_of(row):
        own = _single_score(session, row.id, domain, split, block_size, max_tokens)
        parent = _single_score(session, row.parent_id, domain, split, block_size, max_tokens)
        same = own is not None and parent is not None and own.num_tokens == parent.num_tokens
        if own is not None:
            of_parent = perplexity(parent) if same and parent is not None else None
            rows.append(BesideParent(domain=domain, expert=perplexity(own), parent=of_parent))
    return rows


def can_be_certified(session: Session, expert: str) -> bool:
    """Whether an expert was added to an existing model; otherwise there is no addition to certify."""
    return _was_added(expert_row(session, expert))


def additions_of(session: Session, expert: str) -> list[ReportCard]:
    """The certificates of an expert's additions, the newest first."""
    return list_reports(session, kind=KIND, about_id=expert_row(session, expert).id)


def verdict(
    faults: Sequence[str],
    num_files: int,
    num_tensors: int,
    measured: Sequence[MeasuredChange],
    later: Sequence[str] = (),
    outcome: str = "",
) -> str:
    """The certificate in a few sentences, from what was there before; `later` are faults of what came afterwards.

    `outcome` says of a training that made its expert worse that it did.
    """
    if faults:
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        return f"NOT certified: existing files were changed. {faults[0]}{more}"
    same = f"Nothing that existed was changed: {num_files} files and {num_tensors} tensors are unchanged."
    if later:
        return f"{same} What each domain gained was not measured: of what was added later, {later[0]}"
    sentences = [f"by {change(one.percent)} on {one.domain}" for one in measured if one.is_new]
    if old := [one for one in measured if not one.is_new]:
        worst = max(old, key=lambda one: one.percent)
        sentences.append(f"by at most {change(worst.percent)} on an old domain ({worst.domain})")
    changed = f"Perplexity changed {' and '.join(sentences)}." if sentences else ""
    return " ".join(filter(None, (same, changed, outcome)))


def _two_plans(
    session: Session, storage: Storage, mixture: Mixture, row: Expert
) -> tuple[GenerationPlan, GenerationPlan]:
    """The mixture as it is saved, without the expert and with it."""
    on = [m.expert.name for m in mixture.members if m.takes_part]
    others = [name for name in on if name != row.name]
    if row.name not in on or not others:
        raise MixtureError(
            f"“{row.name}” does not take part in “{mixture.name}” together with another expert.",
            f"Put it in with `workbench mixture add`, or switch it on; then certify it. In “{mixture.name}”: "
            f"{', '.join(on) or 'none'}.",
        )
    before, after = (plan(session, storage, MixtureRequest(mixture.name, active=names)) for names in (others, on))
    return before, after


def _was_added(row: Expert) -> bool:
    return row.parent is not None and row.parent.base_id == row.base_id


def _record_of(storage: Storage, newcomer: Expert, artifact: Artifact, what: str) -> Recorded:
    return Recorded(artifact.id, what, storage.kept(artifact), artifact.created_at <= newcomer.created_at)


def _beside(storage: Storage, newcomer: Expert, experts: Sequence[Expert]) -> Iterator[Recorded]:
    bases: dict[str, Expert] = {}
    for expert in experts:
        bases.setdefault(expert.base_id, expert)
    for expert in bases.values():
        yield _record_of(storage, newcomer, expert.base, f"the base of {expert.name}")
    for expert in experts:
        yield _record_of(storage, newcomer, expert.artifact, f"expert {expert.name}")


def _domains(session: Session, mixture: Mixture, row: Expert, split: HeldOutSplit) -> list[str]:
    """The expert's own, those of the mixture's others, and every one that those were scored on."""
    others = [member.expert for member in mixture.members if member.expert is not row]
    scored = (
        select(Domain.name)
        .join(Evaluation, Evaluation.domain_id == Domain.id)
        .where(Evaluation.expert_id.in_([one.id for one in others]), Evaluation.split == split)
    )
    old = {*session.scalars(scored), *(name for one in others for name in domains_of(one))}
    return list(dict.fromkeys([*domains_of(row), *sorted(old)]))


def _single_score(
    session: Session, expert_id: str | None, domain: str, split: HeldOutSplit, block_size: int, max_tokens: int
) -> Evaluation | None:
    statement = (
        select(Evaluation)
        .join(Evaluation.domain)
        .where(Evaluation.expert_id == expert_id, Domain.name == domain, Evaluation.split == split)
        .where(Evaluation.block_size == block_size, Evaluation.num_tokens <= max_tokens)
    )
    return session.scalar(statement.order_by(Evaluation.num_tokens.desc()).limit(1))


AFTER, BEFORE = "dev_perplexity", "dev_perplexity_before"  # metrics of an expert


def worse_than_before(metrics: Mapping[str, Any]) -> str:
    """A sentence about an expert that its training made worse; empty for others, and where it was not measured."""
    after, before = metrics.get(AFTER), metrics.get(BEFORE)
    if after is None or before is None or after <= before:
        return ""
    return (
        f"Its training made it worse: perplexity {perplexity_text(after)} on its held-out text, "
        f"{perplexity_text(before)} before the first update. Train it again at a lower learning rate."
    )
