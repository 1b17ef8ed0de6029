"""The cause of a job's failure and its next step, with the user's own file names, also as an error."""

from __future__ import annotations

from ui.errors import JobFailedError
from ui.present.forms.readable_folders import own_names
from ui.present.next_step_text import next_step_text, with_options
from workbench.answers.cards import JobCard
from workbench.kinds.kind import paths_read
from workbench.settings import get_settings

LEAVE_OUT = (
    "Or import it again and leave broken records out: they are listed then (“Leave broken records out”, --skip-bad)."
)


def cause_of(job: JobCard) -> str:
    """Why the job failed, with the original names of uploaded files; empty for a job that has not failed."""
    text = with_options(job.error)
    for path in paths_read(job.spec):
        text = own_names(text, path, get_settings().root)
    return text


def next_step_of(job: JobCard) -> str:
    """What to do about it; a broken record can be left out too, unless that was tried."""
    is_bad_record = job.failure is not None and job.failure.line is not None
    if not is_bad_record or job.spec.get("skip_bad") is not False:  # tried, or there is no such choice
        return next_step_text(job.next_step)
    return f"{next_step_text(job.next_step)} {LEAVE_OUT}".strip()


def failure_of(card: JobCard) -> JobFailedError:
    """Why a failed or cancelled job ended, and what to do next."""
    retry = f"Retry it with: workbench job retry {card.id}"
    if card.state == "cancelled":
        reason = f": {cause_of(card)}" if card.error else "."
        return JobFailedError(f"{card.title} was cancelled{reason}", next_step_of(card) or retry)
    return JobFailedError(f"{card.title} failed: {cause_of(card)}", next_step_of(card) or retry)
