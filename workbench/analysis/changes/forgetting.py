"""Forgetting (DEMix fig. 6, table 13): how perplexities of two mixtures differ on the same text, by stored scores."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import MixtureError
from engine.loading.plan import GenerationPlan
from engine.text.split_names import HeldOutSplit
from workbench.analysis.scores import Measure, mixed_perplexity, scored_sets
from workbench.answers.changes import DomainChange, Forgetting, MeanChange
from workbench.registry.experts import domains_of
from workbench.registry.tokenizers import with_another_tokenizer
from workbench.requests.planning import plan
from workbench.store.storage import Storage
from workbench.tables import Domain, Evaluation, Expert

TARGET, ROLES = "target", ("train", "novel")  # the paper's N is what was adapted to, its T the first of the roles


def forgetting(
    session: Session, storage: Storage, before: str, after: str, *, split: HeldOutSplit = "test"
) -> Forgetting:
    """Each domain on which both were scored on the same tokens, and the mean change over the domains of each role.

    A target is what was adapted to: the domain of an expert that only `after` has and that began as the copy of
    another. `before` and `after` name mixtures or experts, each mixed by its own gate.
    Raises MixtureError when their tokens are not the same tokens.
    """
    plans = [plan(session, storage, name) for name in (before, after)]
    if with_another_tokenizer(plans[0], plans[1:]):
        raise MixtureError(
            f"“{before}” and “{after}” cannot be compared per token: their tokenizers differ.",
            "Compare models that were made from one seed.",
        )
    roles = dict(session.execute(select(Domain.name, Domain.role)).tuples().all())
    targets, rows = _targets(session, *plans), []
    for (domain, num_tokens, block_size), both in _shared(session, plans, split).items():
        values = [
            mixed_perplexity(session, storage, one, evaluations) for one, evaluations in zip(plans, both, strict=True)
        ]
        rows.append(
            DomainChange(
                domain=domain,
                role=roles[domain],
                is_target=domain in targets,
                num_tokens=num_tokens,
                block_size=block_size,
                before=values[0],
                after=values[1],
                change_percent=(values[1] / values[0] - 1) * 100,
            )
        )
    return Forgetting(before=before, after=after, split=split, domains=rows, averages=_averages(rows))


def _shared(
    session: Session, plans: Sequence[GenerationPlan], split: HeldOutSplit
) -> dict[Measure, tuple[list[Evaluation], ...]]:
    """The scores of both experts on their longest common text, by domain, tokens and block size."""
    ours, theirs = (scored_sets(session, one, split) for one in plans)
    best: dict[str, Measure] = {}
    for measure in sorted(ours.keys() & theirs.keys()):
        best[measure[0]] = measure  # the last is the longest
    return {measure: (ours[measure], theirs[measure]) for measure in best.values()}


def _targets(session: Session, before: GenerationPlan, after: GenerationPlan) -> set[str]:
    """The domains that the later model was adapted to."""
    new = {one.id for one in after.experts} - set(before.member_ids)
    rows = session.scalars(select(Expert).where(Expert.id.in_(new), Expert.parent_id.is_not(None)))
    return {domain for row in rows for domain in domains_of(row)}


def _averages(rows: Sequence[DomainChange]) -> dict[str, MeanChange]:
    """The mean of the domains' changes, each of the same weight; None without a domain."""
    changes: dict[str, list[float]] = {name: [] for name in (TARGET, *ROLES)}
    for row in rows:
        changes[TARGET if row.is_target else row.role].append(row.change_percent)
    return {
        name: MeanChange(num_domains=len(values), change_percent=fmean(values) if values else None)
        for name, values in changes.items()
    }
