"""What the page Overview shows of the registry, read in one short transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ui.present.next_steps import Holdings
from ui.studio.job_views.pending_jobs import unfinished_jobs
from workbench.analysis import perplexity_tables
from workbench.analysis.additions import KIND as ADDITION
from workbench.job_records import jobs as rows
from workbench.registry import corpora, experts, mixtures, reports, seeds
from workbench.registry.cards import DomainCard, EvaluationCard, ExpertCard, JobCard, MixtureCard, ReportCard
from workbench.registry.database import reading

FRESH_SECONDS = 3600.0
_OVER = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Contents:
    """The registry as it is now. `mixtures` are in the order of a choice, the most useful first."""

    domains: Sequence[DomainCard]
    num_seeds: int
    experts: Sequence[ExpertCard]
    mixtures: Sequence[MixtureCard]
    evaluations: Sequence[EvaluationCard]
    unfinished: Sequence[JobCard]
    over: Sequence[JobCard]
    additions: Sequence[ReportCard]

    @property
    def mixture(self) -> MixtureCard | None:
        """The mixture that the page is about."""
        return self.mixtures[0] if self.mixtures else None

    @property
    def is_scored(self) -> bool:
        """Whether a mixture can be measured: one of its experts is scored."""
        scored = {one.expert for one in self.evaluations}
        return any(member.expert in scored for mixture in self.mixtures for member in mixture.members)

    def holdings(self) -> Holdings:
        """How many of each thing there are."""
        scored = {one.expert for one in self.evaluations}
        return Holdings(
            domains=len(self.domains),
            seeds=self.num_seeds,
            experts=len(self.experts),
            mixtures=len(self.mixtures),
            evaluations=len(self.evaluations),
            unscored=[card.name for card in self.experts if card.mixtures and card.name not in scored],
            unfinished=self.unfinished,
            failed=[job for job in self.over if is_fresh_failure(job)],
        )


def read_contents() -> Contents:
    """What the registry holds now."""
    unfinished = unfinished_jobs()
    with reading() as session:
        return Contents(
            domains=corpora.list_domains(session),
            num_seeds=len(seeds.list_seeds(session)),
            experts=experts.list_experts(session),
            mixtures=mixtures.most_useful_first(session),
            evaluations=perplexity_tables.list_evaluations(session),
            unfinished=unfinished,
            over=rows.list_jobs(session, state=_OVER),
            additions=reports.list_reports(session, kind=ADDITION),
        )


def is_fresh_failure(job: JobCard) -> bool:
    """Whether a failure is recent enough to be shown."""
    return job.state == "failed" and time.time() - (job.finished_at or 0) < FRESH_SECONDS
