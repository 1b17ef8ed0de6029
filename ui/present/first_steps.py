"""The steps from nothing to a mixture that can be talked to, and how far each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ui.present.jobs.job_status import bringing, by_turn, percent_of, sentence_of, step_of
from ui.present.next_steps import Holdings
from ui.present.text.formatting import listed, pluralize
from workbench.answers.cards import JobCard
from workbench.kinds.kind import FirstStep

StepState = Literal["done", "now", "later"]


@dataclass(frozen=True)
class StartStep:
    """One step: what it is, a sentence, and the job that is at work on it."""

    title: str
    words: str
    state: StepState
    job: JobCard | None = None
    progress: float = 0.0  # of the whole step, 0 to 1, while a job is at work on it


def first_steps(have: Holdings, domains: Sequence[str], over: Sequence[JobCard]) -> list[StartStep]:
    """The five steps of a first visit."""
    return [
        _imports(have, domains, over),
        _step(have, "seeds", have.seeds, "A seed model is made", "all experts start from this small decoder"),
        _step(have, "experts", have.experts, "Experts are trained", "each on one domain, everything else is shared"),
        _step(
            have,
            "evaluations",
            have.evaluations,
            "Every expert is scored on every domain",
            "then the three numbers and the picture of this page appear here",
        ),
        StartStep("Talk to the mixture", "on the page Playground", "later"),
    ]


def first_visit_title(have: Holdings) -> str:
    """How far the first expert is."""
    job = bringing(have.unfinished, "experts")
    if have.experts:
        return "Your first experts are trained; their scores follow"
    if job and job.state == "running":
        return f"Your first expert is {percent_of(job)} % done"
    if have.unfinished:
        return "Your first expert is on its way"
    return "From text to experts that you can talk to"


def _imports(have: Holdings, domains: Sequence[str], over: Sequence[JobCard]) -> StartStep:
    waiting = by_turn([job for job in have.unfinished if step_of(job) == "domains"])  # the one at work first
    ended = sum(step_of(job) == "domains" and job.state == "done" for job in over)
    if waiting:
        title = f"Text becomes domains: {ended} of {ended + len(waiting)} imported"
        progress = (ended + sum(job.progress for job in waiting)) / (ended + len(waiting))
        return StartStep(title, sentence_of(waiting[0]), "now", waiting[0], progress)
    if domains:
        return StartStep(f"{pluralize(len(domains), 'domain')} of text imported", listed(list(domains), 8), "done")
    return StartStep("Text becomes domains", "each kind of text is a domain that one expert can learn", "later")


def _step(have: Holdings, step: FirstStep, count: int, title: str, words: str) -> StartStep:
    job = bringing(have.unfinished, step)
    if job and job.state != "queued":
        return StartStep(job.title, sentence_of(job), "now", job, job.progress)
    if count:
        return StartStep(title, words, "done")
    return StartStep(job.title if job else title, words, "later")
