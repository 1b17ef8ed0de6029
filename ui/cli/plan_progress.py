"""One progress bar for several jobs, in the queue or in this process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, cast

from ui.cli.output import print_note
from ui.cli.progress_bar import progress_bar
from ui.present.jobs.job_status import percent_of
from ui.present.text.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Generator

    from workbench.answers.cards import JobCard


def show_progress(ids: Sequence[str], in_process: bool, quiet: bool) -> None:
    """Shows a progress bar on stderr until all jobs have ended; with `here`, runs them in child processes."""
    from jobs.queue.local_runner import run_jobs, watch

    stream = cast("Generator[list[JobCard], None, None]", run_jobs(ids) if in_process else watch(ids))
    with progress_bar(quiet) as draw, closing(stream):
        try:
            for cards in stream:
                draw(line(cards), sum(_share(card) for card in cards) / len(cards))
        except KeyboardInterrupt:
            print_note("Stopped. Run the same command again to continue.")
            raise


def _share(card: JobCard) -> float:
    return 1.0 if card.state == "done" else card.progress


def line(cards: Sequence[JobCard]) -> str:
    """The number of finished jobs, and those that are running or wait for a worker."""
    done = sum(card.state == "done" for card in cards)
    running = [f"{card.title} {percent_of(card)} %" for card in cards if card.state == "running"]
    began = min((card.started_at for card in cards if card.started_at), default=None)
    ended = max((card.finished_at or 0.0 for card in cards), default=0.0)
    spent = f" in {duration(ended - began)}" if began and ended > began else ""
    waiting = ["waiting for a worker"] if any(card.state == "queued" for card in cards) else []
    return " · ".join([f"{done} of {len(cards)} jobs done{spent}", *(running or waiting)])
