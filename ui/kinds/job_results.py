"""The result of a job as a sentence, and the page that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ui.kinds.catalog import screen_of
from ui.pages.catalog import page_at
from ui.present.pages import Page
from workbench.answers.cards import JobCard
from workbench.kinds.kind import ResultLink


class ResultPlace(NamedTuple):
    """A page, the label of the button that leads there, and the state of its widgets."""

    page: Page
    label: str
    state: dict[str, Any]


def result_places(job: JobCard) -> list[ResultPlace]:
    """Where the result of a job is shown, and where to go on with it; empty while there is none."""
    links = _links(screen_of(job.kind).link) if job.state == "done" else ()
    return [ResultPlace(page_at(link.address), link.label, link.state(job.result)) for link in links]


def _links(link: ResultLink | None) -> Iterator[ResultLink]:
    while link is not None:
        yield link
        link = link.beside


def result_sentence(job: JobCard) -> str:
    """The result of a job as a sentence; empty unless it is done."""
    return screen_of(job.kind).sentence(job.result) if job.state == "done" else ""
