"""The error of a job that did not end well, for whoever waited for it."""

from __future__ import annotations

from ui.errors import JobFailedError
from ui.present.jobs.failure_text import cause_of, next_step_of
from workbench.answers.cards import JobCard


def failure_of(card: JobCard) -> JobFailedError:
    """Why a failed or cancelled job ended, and what to do next."""
    retry = f"Retry it with: workbench job retry {card.id}"
    if card.state == "cancelled":
        reason = f": {cause_of(card)}" if card.error else "."
        return JobFailedError(f"{card.title} was cancelled{reason}", next_step_of(card) or retry)
    return JobFailedError(f"{card.title} failed: {cause_of(card)}", next_step_of(card) or retry)
