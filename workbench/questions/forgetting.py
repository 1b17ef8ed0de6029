"""Forgetting (DEMix fig. 6, table 13): how perplexities of two mixtures differ on the same text, by stored scores."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import MixtureError
from engine.loading.plan import GenerationPlan
from engine.text.split_names import HeldOutSplit
from workbench.analysis.scores import Measure, mixed_perplexity, scored_sets
from workbench.answers.base import Answer
from workbench.questions.question import Question, Split
from workbench.registry.experts import domains_of, with_another_tokenizer
from workbench.requests.planning import plan
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.store.storage import Storage

TARGET, ROLES = "target", ("train", "novel")  # the paper's N is what was adapted to, its T the first of the roles


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


class ForgettingRequest(Question[Forgetting]):
    """How much a model forgot: its perplexity on each domain before and after, from stored scores."""

    path = "forgetting"
    operation = "measure_forgetting"
    rows = "domains"

    before: str = Field(description="A mixture (or an expert) as it was.")
    after: str = Field(description="The mixture (or expert) that it became.")
    split: Split = "test"

    def answer(self, session: Session, storage: Storage) -> Forgetting:
        """Each domain on which both were scored on the same tokens, and the mean change over the domains of each role.

        A target is what was adapted to: the domain of an expert that only `after` has and that began as the copy of
        another. Each is mixed by its own gate. Raises MixtureError when their tokens are not the same tokens.
        """
        plans = [plan(session, storage, name) for name in (self.before, self.after)]
        if with_another_tokenizer(plans[0], plans[1:]):
            raise MixtureError(
                f"“{self.before}” and “{self.after}” cannot be compared per token: their tokenizers differ.",
                "Compare models that were made from one seed.",
            )
        roles = dict(session.execute(select(Domain.name, Domain.role)).tuples().all())
        new = {one.id for one in plans[1].experts} - set(plans[0].member_ids)
        adapted = session.scalars(select(Expert).where(Expert.id.in_(new), Expert.parent_id.is_not(None)))
        targets, rows = {domain for row in adapted for domain in domains_of(row)}, []
        for (domain, num_tokens, block_size), both in _shared(session, plans, self.split).items():
            before, after = (
                mixed_perplexity(session, storage, one, evaluations)
                for one, evaluations in zip(plans, both, strict=True)
            )
            rows.append(
                DomainChange(
                    domain=domain,
                    role=roles[domain],
                    is_target=domain in targets,
                    num_tokens=num_tokens,
                    block_size=block_size,
                    before=before,
                    after=after,
                    change_percent=(after / before - 1) * 100,
                )
            )
        return Forgetting.from_fields(self, domains=rows, averages=_averages(rows))


QUESTION = ForgettingRequest


def _shared(
    session: Session, plans: Sequence[GenerationPlan], split: HeldOutSplit
) -> dict[Measure, tuple[list[Evaluation], ...]]:
    """The scores of both experts on their longest common text, by domain, tokens and block size."""
    ours, theirs = (scored_sets(session, one, split) for one in plans)
    best: dict[str, Measure] = {}
    for measure in sorted(ours.keys() & theirs.keys()):
        best[measure[0]] = measure  # the last is the longest
    return {measure: (ours[measure], theirs[measure]) for measure in best.values()}


def _averages(rows: Sequence[DomainChange]) -> dict[str, MeanChange]:
    """The mean of the domains' changes, each of the same weight; None without a domain."""
    changes: dict[str, list[float]] = {name: [] for name in (TARGET, *ROLES)}
    for row in rows:
        changes[TARGET if row.is_target else row.role].append(row.change_percent)
    return {
        name: MeanChange(num_domains=len(values), change_percent=fmean(values) if values else None)
        for name, values in changes.items()
    }
