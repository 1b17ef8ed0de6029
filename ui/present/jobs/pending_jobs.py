"""Unfinished jobs by their turn, and how far they are as a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from ui.present.jobs.job_status import is_over, time_left
from ui.present.text.formatting import pluralize
from workbench.answers.cards import JobCard
from workbench.kinds.kind import FirstStep, known_kinds
from workbench.schema.job_states import UNFINISHED


def by_turn(jobs: Sequence[JobCard]) -> list[JobCard]:
    """Unfinished jobs, running ones first, then the others by the time they were created."""
    unfinished = [job for job in jobs if not is_over(job)]
    return sorted(unfinished, key=lambda job: (UNFINISHED.index(job.state), job.created_at))


def coming(jobs: Sequence[JobCard], kind: str, mixture: str | None = None) -> JobCard | None:
    """The unfinished job of a kind, and of a mixture if one is given, whose turn is first; None if there is none."""
    of_kind = (job for job in by_turn(jobs) if job.kind == kind)
    return next((job for job in of_kind if mixture is None or job.spec.get("mixture") == mixture), None)


def bringing(jobs: Sequence[JobCard], step: FirstStep) -> JobCard | None:
    """The unfinished job whose turn is first, of a kind that brings what a new workbench lacks."""
    return next((job for job in by_turn(jobs) if step_of(job) == step), None)


def step_of(job: JobCard) -> FirstStep:
    """What a job brings of what a new workbench lacks; empty also where its kind is not installed."""
    kind = known_kinds().get(job.kind)
    return kind.first_step if kind else ""


def coming_words(job: JobCard, jobs: Sequence[JobCard]) -> str:
    """How far a job on its way is: `“Train” is running, about 3 min 20 s left.`"""
    if job.state == "paused":
        return f"“{job.title}” is paused: resume it."
    if job.state != "queued":
        left = f", {time_left(job)}" if job.eta_seconds is not None else ""
        return f"“{job.title}” is {job.state}{left}."
    if job.waits_for:
        return f"“{job.title}” is queued. {job.waits_for}"
    before = by_turn(jobs).index(job)
    return f"“{job.title}” waits for its turn" + (f" behind {pluralize(before, 'job')}." if before else ".")
