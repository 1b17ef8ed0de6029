"""Jobs carried out by this command instead of a worker: each in a process of its own, several side by side."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence

from engine.device import prepare_process
from jobs.submit import ENDED
from jobs.tasks import run_most_urgent, stop_runners
from workbench import database
from workbench.cards import JobCard
from workbench.services import jobs as rows
from workbench.services import leases
from workbench.settings import Settings, get_settings

LOOK_SECONDS = 0.5


def watch(ids: Sequence[str], settings: Settings | None = None) -> Iterator[list[JobCard]]:
    """The cards of jobs every half second until all have ended, or are paused."""
    pause = threading.Event()
    while True:
        cards = cards_of(ids, settings)
        yield cards
        if all(card.state in (*ENDED, "paused") for card in cards):
            return
        pause.wait(LOOK_SECONDS)


def carry_out(ids: Sequence[str], settings: Settings | None = None) -> Iterator[list[JobCard]]:
    """Runs these jobs, as many side by side as a worker would, and gives their cards meanwhile.

    Closing it, or Ctrl-C, stops what runs at a checkpoint and leaves it in the queue.
    """
    settings = settings or get_settings()
    prepare_process(settings.threads or max(1, (os.cpu_count() or 1) // settings.worker_slots))
    over = threading.Event()
    runners = [threading.Thread(target=_run_all, args=(set(ids), settings, over)) for _ in range(settings.worker_slots)]
    for runner in runners:
        runner.start()
    try:
        for cards in watch(ids, settings):
            yield cards
            if not any(runner.is_alive() for runner in runners):
                return
    except BaseException:
        over.set()
        stop_runners()
        raise
    finally:
        for runner in runners:
            runner.join()


def _run_all(ids: Collection[str], settings: Settings, over: threading.Event) -> None:
    """Runs one after another until none is left that may yet become due."""
    while not over.is_set() and any(_may_run(card) for card in cards_of(list(ids), settings)):
        if not run_most_urgent(settings, ids):  # those that wait are behind one that runs, here or elsewhere
            over.wait(LOOK_SECONDS)
            with database.transaction(settings) as session:  # no clock may be here to take back what fell silent
                leases.expire(session, time.time(), settings.max_attempts)


def _may_run(card: JobCard) -> bool:
    return card.state in ("queued", "running", "interrupted")


def cards_of(ids: Sequence[str], settings: Settings | None = None) -> list[JobCard]:
    """The jobs as they stand."""
    with database.reading(settings) as session:
        return [rows.get_job(session, job_id) for job_id in ids]
