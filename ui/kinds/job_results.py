"""The result of a job as a sentence, and the page that shows it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ui.kinds.catalog import screen_of
from ui.present.pages import Page
from workbench.registry.cards import JobCard


class ResultPlace(NamedTuple):
    """A page, the label of the button that leads there, and the state of its widgets."""

    page: Page
    label: str
    state: dict[str, Any]


def result_place(job: JobCard) -> ResultPlace | None:
    """Where the result of a job is shown; None while there is none."""
    if job.state != "done":
        return None
    link = screen_of(job.kind).link
    return ResultPlace(link.page, link.label, link.state(job.result)) if link else None


def result_sentence(job: JobCard) -> str:
    """The result of a job as a sentence; empty unless it is done."""
    return screen_of(job.kind).sentence(job.result) if job.state == "done" else ""
