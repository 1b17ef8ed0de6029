"""Suggested next steps, and the steps of a first visit, from the registry, pending jobs and failed jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ui.present.jobs.failure_text import cause_of
from ui.present.jobs.job_status import bringing, by_turn, describe_coming_job, percent_of, sentence_of, step_of
from ui.present.next_step_text import next_step_text
from ui.present.pages import CORPORA, EXPERTS, JOBS, PLAYGROUND, POSTERIORS, REPORTS, SEEDS, SPECIALIZATION, TRAIN, Page
from ui.present.text.formatting import listed, pluralize
from workbench.answers.cards import JobCard
from workbench.kinds.kind import FirstStep


@dataclass(frozen=True)
class Holdings:
    """Counts of registry items, the unfinished jobs and the jobs that failed lately."""

    domains: int = 0
    seeds: int = 0
    experts: int = 0
    mixtures: int = 0
    evaluations: int = 0
    unscored: Sequence[str] = ()  # experts that take part in a mixture and have no score anywhere
    unfinished: Sequence[JobCard] = ()
    failed: Sequence[JobCard] = ()


@dataclass(frozen=True)
class Suggestion:
    """A suggested step: a sentence that says why, the page for it, and the label of the button that leads there."""

    sentence: str
    page: Page
    label: str
    kind: str = ""  # of job, whose form the page opens
    job: str = ""  # the id of the job that the page opens

    @property
    def query(self) -> dict[str, str]:
        """The query of the page's address."""
        return {key: value for key, value in (("kind", self.kind), ("job", self.job)) if value}


def suggestions(have: Holdings) -> list[Suggestion]:
    """The suggestions, the next step first; at most three."""
    return [*_suggest(have)][:3]


def _suggest(have: Holdings) -> Iterator[Suggestion]:
    if have.failed:
        newest = max(have.failed, key=lambda job: job.finished_at or job.created_at)
        yield Suggestion(_failure(newest, len(have.failed) - 1), JOBS, "See what failed", job=newest.id)
    for step, then, suggestion in _STEPS:
        if getattr(have, step):
            continue
        job = bringing(have.unfinished, step)
        yield _coming(job, have, then) if job else suggestion
        if step != "evaluations":
            mixture_job = bringing(have.unfinished, "experts")
            if mixture_job and step != "experts":
                yield _coming(mixture_job, have, _TALK)
            return
    yield from _with_experts(have)


def _coming(job: JobCard, have: Holdings, then: str) -> Suggestion:
    """Leads to an unfinished job that makes what is missing."""
    return Suggestion(f"{describe_coming_job(job, have.unfinished)} {then}", JOBS, _SEE, job=job.id)


def _with_experts(have: Holdings) -> Iterator[Suggestion]:
    if have.evaluations and have.unscored and not bringing(have.unfinished, "evaluations"):
        problem = f"{pluralize(len(have.unscored), 'expert')} without scores: {listed(list(have.unscored), 3)}."
        yield Suggestion(
            f"{problem} Evaluate a mixture that contains them: only missing scores are computed.",
            TRAIN,
            "Evaluate",
            "evaluate",
        )
    if have.evaluations:
        yield Suggestion(
            "See how much each expert specializes in its domain.", SPECIALIZATION, "See who is good at what"
        )
    yield Suggestion("Paste a text to see which expert leads at each word.", POSTERIORS, "Read a text")
    yield Suggestion("Compare the output of two mixtures side by side.", PLAYGROUND, "Compare two mixtures")


def _failure(job: JobCard, num_others: int) -> str:
    """That a job failed, why, and what to do."""
    more = f" {pluralize(num_others, 'more job')} failed." if num_others else ""
    cause = f": {cause_of(job)}" if job.error else "."
    return f"“{job.title}” has failed{cause} {next_step_text(job.next_step) or 'See its log there.'}{more}"


_SEE = "See the job"
_TALK = "Then you can generate text with a mixture."
_STEPS: tuple[tuple[FirstStep, str, Suggestion], ...] = (
    (
        "domains",
        "It brings the first text.",
        Suggestion(
            "Bring in text: each kind of text becomes a domain that an expert can learn.", CORPORA, "Bring in text"
        ),
    ),
    (
        "seeds",
        "All experts start from the seed model.",
        Suggestion(
            "Make a seed model, which all experts start from: of a small real model, or a new one.",
            SEEDS,
            "Choose a seed model",
        ),
    ),
    (
        "experts",
        _TALK,
        Suggestion(
            "Train a DEMix model: one expert for each domain, everything else shared.",
            TRAIN,
            "Train the first experts",
            "train-joint",
        ),
    ),
    (
        "evaluations",
        "Its scores make every toggle instant.",
        Suggestion(
            "Evaluate the experts: scores are stored once and make every toggle instant.",
            TRAIN,
            "Evaluate the experts",
            "evaluate",
        ),
    ),
)

# The step after a page that holds something; other pages have a button of their own for it.
STEP_AFTER: Mapping[Page, Suggestion] = {
    CORPORA: Suggestion("An expert learns one domain.", TRAIN, "Train an expert"),
    JOBS: Suggestion("A training is a job.", TRAIN, "New training"),
    EXPERTS: Suggestion("One more expert leaves the others as they are.", TRAIN, "Train another expert"),
    REPORTS: Suggestion("An expert's card has the button that certifies it.", EXPERTS, "Certify an expert"),
}


StepState = Literal["done", "now", "later"]


@dataclass(frozen=True)
class StartStep:
    """One step: what it is, a sentence, and the job that is at work on it."""

    title: str
    sentence: str
    state: StepState
    job: JobCard | None = None
    progress: float = 0.0  # of the whole step, 0 to 1, while a job is at work on it


def first_steps(have: Holdings, domains: Sequence[str], over: Sequence[JobCard]) -> list[StartStep]:
    """The five steps of a first visit."""
    return [
        _imports(have, domains, over),
        _step(
            have,
            "seeds",
            have.seeds,
            "A seed model is made",
            "all experts start from it, and the page Playground answers with it",
        ),
        _step(have, "experts", have.experts, "Experts are trained", "each on one domain, everything else is shared"),
        _step(
            have,
            "evaluations",
            have.evaluations,
            "Every expert is scored on every domain",
            "then the three numbers and the picture of this page appear here",
        ),
        StartStep("Talk to the mixture", "on the page Playground", "now" if have.mixtures else "later"),
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
    if count:  # later jobs of the same kind do not belong to a first visit
        return StartStep(title, words, "done")
    job = bringing(have.unfinished, step)
    if job and job.state != "queued":
        return StartStep(job.title, sentence_of(job), "now", job, job.progress)
    return StartStep(job.title if job else title, words, "later")
