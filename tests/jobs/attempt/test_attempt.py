"""One attempt, driven in this process: how it ends, what it writes, and that it can only end once."""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from sqlalchemy.orm import Session
from tiny_kind import job_spec
from world import RunningWorkbench, create

from engine.errors import EngineError
from engine.events import Event
from jobs.attempt import attempt
from jobs.attempt.attempt import new_owner, run_here, take
from jobs.attempt.work import append_to_log, log_path
from jobs.queue import submit
from workbench.errors import JobError, LeaseLostError, RegistryUnavailableError
from workbench.job_records import jobs as rows
from workbench.registry import database
from workbench.settings import Settings


def run_until(job_id: str, happens: Callable[[Event], object]) -> None:
    """Runs a job to its end; `happens` is called with every event."""
    for event in run_here(job_id):
        happens(event)


def at_step(number: int, act: Callable[[], object]) -> Callable[[Event], object]:
    return lambda event: act() if getattr(event, "step", 0) == number else None


@pytest.fixture
def job_id(servers: RunningWorkbench) -> str:
    """A job in the queue, with no worker about."""
    assert servers
    return create()


def test_a_job_is_done_together_with_what_it_made_and_its_full_curve(servers: RunningWorkbench, job_id: str) -> None:
    events = list(run_here(job_id))
    card = servers.card(job_id)
    assert (card.state, card.progress, card.result["steps"]) == ("done", 1.0, 100)
    assert card.result["throughput"]["num_steps"] == 100
    assert servers.num_effects(job_id) == 1
    assert len(events) > 100
    assert card.progress_note.startswith("step 100 of 100 · loss 0.01 nats/token")
    with database.reading() as session:
        assert [point.step for point in rows.metrics(session, job_id, "loss")] == list(range(1, 101))
        assert rows.metrics(session, job_id, "dev_loss/law")[0].value == 1.5
    assert not (servers.settings.jobs_folder / job_id / "work").exists()


def test_a_traceback_that_quotes_half_a_character_is_logged(servers: RunningWorkbench, job_id: str) -> None:
    append_to_log(servers.settings, job_id, "caf\udce9")
    assert "caf\\udce9" in log_path(servers.settings, job_id).read_text()


@pytest.mark.parametrize("damaged", [b'{"num_steps": 50, "num_tokens": 1x', b"", b'{"num_steps": 50, "crc32": 7}'])
def test_damaged_statistics_end_no_job(servers: RunningWorkbench, job_id: str, damaged: bytes) -> None:
    events = run_here(job_id)
    while getattr(next(events), "step", 0) < 50:
        pass
    events.close()  # type: ignore[attr-defined]
    file = servers.settings.jobs_folder / job_id / "work" / attempt.THROUGHPUT
    file.write_bytes(damaged)
    submit.resume(job_id)
    list(run_here(job_id))
    card = servers.card(job_id)
    assert (card.state, card.result["steps"], servers.num_effects(job_id)) == ("done", 100, 1)
    assert card.result["throughput"]["num_steps"] == 50  # since the damage
    assert any("measured again" in event and str(file) in event for event in servers.events(job_id))


def test_a_problem_fails_the_job_in_its_own_words(servers: RunningWorkbench) -> None:
    job_id = create("problem")
    with pytest.raises(EngineError, match="The rate must be above 0"):
        list(run_here(job_id))
    card = servers.card(job_id)
    assert card.state == "failed"
    assert card.error == "The rate must be above 0, but is -1 instead."
    assert card.next_step == "Choose another rate."


def test_an_error_of_our_own_fails_the_job_and_leaves_its_traceback(servers: RunningWorkbench) -> None:
    job_id = create("bug")
    with pytest.raises(JobError, match="KeyError"):
        list(run_here(job_id))
    log = servers.settings.jobs_folder / job_id / "log.txt"
    assert "KeyError: 'no such thing'" in servers.card(job_id).error
    assert str(log) in servers.card(job_id).next_step
    assert "Traceback" in log.read_text()


def test_a_full_disk_pauses_and_the_job_continues_when_there_is_space(
    servers: RunningWorkbench, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(JobError):
        patch.setattr("tiny_kind.save", disk_is_full)
        list(run_here(job_id))
    card = servers.card(job_id)
    assert (card.state, servers.num_effects(job_id)) == ("paused", 0)
    assert "is full" in card.error
    assert "Free some space" in card.next_step
    submit.resume(job_id)
    list(run_here(job_id))
    assert servers.card(job_id).state == "done"


def test_what_cannot_be_registered_leaves_no_row(servers: RunningWorkbench) -> None:
    job_id = create("cannot register")
    with pytest.raises(EngineError):
        list(run_here(job_id))
    assert (servers.card(job_id).state, servers.num_effects(job_id)) == ("failed", 0)


@pytest.mark.parametrize(("how", "state"), [("cancel", "cancelled"), ("pause", "paused")])
def test_a_stop_keeps_the_work_so_far(servers: RunningWorkbench, job_id: str, how: str, state: str) -> None:
    run_until(job_id, at_step(20, lambda: submit.request_stop(job_id, how)))  # type: ignore[arg-type]
    checkpoint = servers.settings.jobs_folder / job_id / "work" / "step"
    assert servers.card(job_id).state == state
    assert 20 <= int(checkpoint.read_text()) < 100
    assert servers.num_effects(job_id) == 0


def test_a_paused_job_goes_on_where_it_stopped(servers: RunningWorkbench, job_id: str) -> None:
    run_until(job_id, at_step(20, lambda: submit.request_stop(job_id, "pause")))
    submit.resume(job_id)
    steps = [getattr(event, "step", 0) for event in run_here(job_id)]
    assert min(filter(None, steps)) > 20
    assert servers.card(job_id).state == "done"


def test_a_cancel_just_before_the_end_is_the_only_end(servers: RunningWorkbench, job_id: str) -> None:
    run_until(job_id, at_step(100, lambda: submit.request_stop(job_id, "cancel")))
    assert (servers.card(job_id).state, servers.num_effects(job_id)) == ("cancelled", 0)
    with pytest.raises(JobError):
        run_until(job_id, print)


def test_a_cancel_that_the_last_write_finds_keeps_the_work(
    servers: RunningWorkbench, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = attempt.finish_done

    def late(*arguments: Any) -> bool:
        submit.request_stop(job_id, "cancel")
        return real(*arguments)

    monkeypatch.setattr(attempt, "finish_done", late)
    list(run_here(job_id))
    assert (servers.card(job_id).state, servers.num_effects(job_id)) == ("cancelled", 0)
    assert (servers.settings.jobs_folder / job_id / "work" / "step").read_text() == "100"


def test_cancelling_twice_is_cancelling_once(servers: RunningWorkbench, job_id: str) -> None:
    run_until(job_id, at_step(50, lambda: [submit.request_stop(job_id, "cancel") for _ in range(2)]))
    submit.request_stop(job_id, "cancel")
    assert servers.card(job_id).state == "cancelled"
    assert servers.events(job_id).count("Cancelled.") == 1


def test_leaving_the_terminal_pauses_the_job(servers: RunningWorkbench, job_id: str) -> None:
    events = run_here(job_id)
    list(itertools.islice(events, 30))
    events.close()  # type: ignore[attr-defined]
    card = servers.card(job_id)
    assert (card.state, card.error) == ("paused", "It was interrupted at the terminal.")


def test_a_job_that_runs_cannot_be_run_here_too(job_id: str) -> None:
    events = run_here(job_id)
    next(iter(events))
    with pytest.raises(JobError, match="not in the queue"):
        next(iter(run_here(job_id)))
    events.close()  # type: ignore[attr-defined]


def test_after_another_took_over_nothing_is_written(
    servers: RunningWorkbench, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()
    monkeypatch.setattr(attempt, "_end_caller", lost.set)  # instead of ending this test's process

    def steal() -> None:
        taken = None
        while taken is None:  # the owner's heartbeat may come in between
            with database.transaction() as session:
                session.get_one(rows.Job, job_id).lease_until = time.time() - 1
            taken = take(servers.settings, job_id, "thief")

    with pytest.raises((LeaseLostError, JobError)):
        run_until(job_id, at_step(50, steal))
    row = servers.row(job_id)
    assert (row.state, row.owner, servers.num_effects(job_id)) == ("running", "thief", 0)
    assert lost.is_set()


def test_a_registry_that_is_away_for_a_moment_changes_nothing(
    servers: RunningWorkbench, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = servers.settings.model_copy(update={"lease_seconds": 600.0})
    refused = registry_away(monkeypatch, after_step=10, num_refusals=2, events=run_here(job_id, patient))
    assert refused == 2
    assert (servers.card(job_id).state, servers.num_effects(job_id)) == ("done", 1)
    assert servers.card(job_id).attempt == 1


def registry_away(
    monkeypatch: pytest.MonkeyPatch, *, after_step: int, num_refusals: float, events: Iterator[Event]
) -> int:
    """Runs a job whose registry refuses so many transactions after a step; how many it refused."""
    is_away, num_refused, real = False, 0, database.transaction

    def sometimes(settings: Settings | None = None) -> AbstractContextManager[Session]:
        nonlocal num_refused
        if is_away and num_refused < num_refusals:
            num_refused += 1
            raise RegistryUnavailableError("The registry does not answer.")
        return real(settings)

    with monkeypatch.context() as patch:
        patch.setattr(database, "transaction", sometimes)
        for event in events:
            is_away = is_away or getattr(event, "step", 0) >= after_step
    return num_refused


def test_a_registry_that_stays_away_stops_the_work_with_a_checkpoint(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = create(steps=100_000)
    claim = take(servers.settings, job_id, new_owner())
    assert claim is not None
    events = attempt.attempt(claim, servers.settings, os.abort)
    with pytest.raises(LeaseLostError, match="did not respond for a full lease"):
        registry_away(monkeypatch, after_step=10, num_refusals=math.inf, events=events)
    assert int((servers.settings.jobs_folder / job_id / "work" / "step").read_text()) > 10
    assert servers.row(job_id).state == "running"
    servers.wait_for(job_id, "interrupted")


def test_a_job_can_be_submitted_and_run_with_only_a_terminal(servers: RunningWorkbench) -> None:
    job_id, events = submit.run_now(job_spec())
    assert servers.card(job_id).state == "running"
    assert sum(1 for _ in events) > 100
    assert servers.card(job_id).state == "done"
    assert not (servers.settings.root / "queue").exists()


def test_a_cancel_is_noticed_without_a_heartbeat(servers: RunningWorkbench) -> None:
    """The row is read about once a second, however rarely the lease is renewed."""
    job_id = create(steps=5_000)  # 40 seconds at least
    rare = servers.settings.model_copy(update={"heartbeat_seconds": 600.0, "lease_seconds": 6_000.0})
    for event in run_here(job_id, rare):
        at_step(10, lambda: submit.request_stop(job_id, "cancel"))(event)
    assert servers.card(job_id).state == "cancelled"
