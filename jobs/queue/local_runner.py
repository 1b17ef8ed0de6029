"""Runs jobs from a command instead of a worker: each in its own process, several in parallel."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from engine.device import prepare_process
from jobs.attempt.work import call_with_retries
from jobs.queue.choosing import leasing
from jobs.queue.device_registration import registered_gpus
from jobs.queue.scheduler import LeaseReaper
from jobs.queue.tasks import run_most_urgent, stop_runners
from workbench.answers.cards import JobCard
from workbench.errors import RegistryUnavailableError
from workbench.job_records import jobs as rows
from workbench.registry import database
from workbench.schema.job_states import FINISHED
from workbench.settings import Settings, get_settings

POLL_SECONDS = 0.5
POLL_SHARE = 0.05  # of the time, at most, that reading the cards of many jobs takes


def watch(ids: Sequence[str], settings: Settings | None = None) -> Iterator[list[JobCard]]:
    """Yields the cards of jobs every half second until each has ended, is paused, or waits for a paused one.

    Hundreds of jobs are read less often, since their reading takes time from those that run. A registry that does not
    respond is waited for as long as a lease lasts.
    """
    settings = settings or get_settings()
    pause = threading.Event()
    while True:
        began = time.monotonic()
        cards = call_with_retries(settings, lambda: cards_of(ids, settings))
        seconds = time.monotonic() - began
        yield cards
        if not _unfinished(cards):
            return
        pause.wait(max(POLL_SECONDS, seconds / POLL_SHARE))


def run_jobs(ids: Sequence[str], settings: Settings | None = None) -> Iterator[list[JobCard]]:
    """Runs these jobs, as many in parallel as a worker would, and yields their cards.

    Closing it, or Ctrl-C, stops running jobs at a checkpoint and leaves them in the queue.
    """
    settings = settings or get_settings()
    prepare_process(settings.threads or max(1, (os.cpu_count() or 1) // settings.worker_slots))
    over, reaper, reaped_at = threading.Event(), LeaseReaper(settings), time.monotonic()
    with registered_gpus(settings) as pool, leasing(pool):
        arguments = set(ids), settings, over
        runners = [threading.Thread(target=_run_all, args=arguments) for _ in range(settings.worker_slots)]
        for runner in runners:
            runner.start()
        try:
            for cards in watch(ids, settings):
                yield cards
                if not any(runner.is_alive() for runner in runners):
                    return
                if time.monotonic() - reaped_at >= settings.reconcile_seconds:  # no scheduler may be running
                    with suppress(RegistryUnavailableError):
                        reaper.reap()
                    reaped_at = time.monotonic()
        except BaseException:
            stop_runners()
            raise
        finally:
            over.set()
            for runner in runners:
                runner.join()


def _run_all(ids: Collection[str], settings: Settings, over: threading.Event) -> None:
    """Runs jobs one after another until `over` is set, also after a registry that did not respond for a while."""
    while not over.is_set():
        has_run = False
        with suppress(RegistryUnavailableError):  # `watch` raises where it stays away
            has_run = run_most_urgent(settings, ids)
        if not has_run:  # waiting jobs depend on one that runs, here or elsewhere
            over.wait(POLL_SECONDS)


def _unfinished(cards: Sequence[JobCard]) -> list[JobCard]:
    """The jobs that run, or can run without another job being resumed."""
    held = {card.id for card in cards if card.state == "paused"}
    while behind := {card.id for card in cards if card.id not in held and held.intersection(card.after)}:
        held |= behind
    return [card for card in cards if card.state not in FINISHED and (card.id not in held or card.state == "running")]


def cards_of(ids: Sequence[str], settings: Settings | None = None) -> list[JobCard]:
    """The current cards of jobs, without deleted ones."""
    with database.reading(settings) as session:
        return rows.get_jobs(session, ids)
