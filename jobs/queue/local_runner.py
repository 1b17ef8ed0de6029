"""Jobs carried out by this command instead of a worker: each in a process of its own, several side by side."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence

from engine.device import prepare_process
from jobs.queue.scheduler import LeaseReaper
from jobs.queue.submit import ENDED
from jobs.queue.tasks import run_most_urgent, stop_runners
from workbench.job_records import jobs as rows
from workbench.registry import database
from workbench.registry.cards import JobCard
from workbench.settings import Settings, get_settings

LOOK_SECONDS = 0.5


def watch(ids: Sequence[str], settings: Settings | None = None) -> Iterator[list[JobCard]]:
    """The cards of jobs every half second until each has ended, is paused, or waits for one that is."""
    pause = threading.Event()
    while True:
        cards = cards_of(ids, settings)
        yield cards
        if not _still_to_come(cards):
            return
        pause.wait(LOOK_SECONDS)


def run_jobs(ids: Sequence[str], settings: Settings | None = None) -> Iterator[list[JobCard]]:
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
        for cards in _take_back_meanwhile(watch(ids, settings), settings):
            yield cards
            if not any(runner.is_alive() for runner in runners):
                return
    except BaseException:
        stop_runners()
        raise
    finally:
        over.set()
        for runner in runners:
            runner.join()


def _run_all(ids: Collection[str], settings: Settings, over: threading.Event) -> None:
    """Runs one after another of these until it is over."""
    while not over.is_set():
        if not run_most_urgent(settings, ids):  # those that wait are behind one that runs, here or elsewhere
            over.wait(LOOK_SECONDS)


def _take_back_meanwhile(stream: Iterator[list[JobCard]], settings: Settings) -> Iterator[list[JobCard]]:
    """The same cards; takes back what fell silent, since no clock process may be here to do it."""
    silence, looked_at = LeaseReaper(settings), time.monotonic()
    for cards in stream:
        yield cards
        if time.monotonic() - looked_at >= settings.reconcile_seconds:
            silence.look()
            looked_at = time.monotonic()


def _still_to_come(cards: Sequence[JobCard]) -> list[JobCard]:
    """Those that run, or may yet run without anybody resuming another."""
    held = {card.id for card in cards if card.state == "paused"}
    while behind := {card.id for card in cards if card.id not in held and held.intersection(card.after)}:
        held |= behind
    return [card for card in cards if card.state not in ENDED and (card.id not in held or card.state == "running")]


def cards_of(ids: Sequence[str], settings: Settings | None = None) -> list[JobCard]:
    """The jobs as they stand; one that somebody deleted is left out."""
    with database.reading(settings) as session:
        return rows.get_jobs(session, ids)
