"""Jobs that a command carries out itself: side by side, each in a process of its own, and stopped with the command."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import Engine, event
from world import RunningWorkbench, create

from jobs.queue import tasks
from jobs.queue.scheduler import LeaseReaper
from jobs.queue.tasks import cards_of, run_jobs
from workbench.errors import RegistryUnavailableError
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.registry import database
from workbench.settings import Settings

pytestmark = pytest.mark.usefixtures("tiny_runner")


def test_all_are_done_in_their_order_and_no_other_is_touched(servers: RunningWorkbench) -> None:
    other, first = create(), create()
    ids = [first, create(after=[first]), create()]
    *_, last = run_jobs(ids, servers.settings)
    assert [card.state for card in last] == ["done"] * 3
    assert last[0].finished_at <= last[1].started_at  # type: ignore[operator]
    assert servers.card(other).state == "queued"


def test_as_many_run_side_by_side_as_the_machine_has_slots(servers: RunningWorkbench) -> None:
    two = Settings(**{**servers.settings.model_dump(), "worker_slots": 2})
    ids = [create(steps=500), create(steps=500)]  # four seconds each: processes start up to seconds apart
    seen = [[card.state for card in cards] for cards in run_jobs(ids, two)]
    assert ["running", "running"] in seen
    assert seen[-1] == ["done", "done"]


def test_a_failure_ends_those_behind_it_and_not_those_beside_it(servers: RunningWorkbench) -> None:
    broken = create("problem")
    ids = [broken, create(after=[broken]), create()]
    *_, last = run_jobs(ids, servers.settings)
    assert [card.state for card in last] == ["failed", "failed", "done"]


def test_closing_it_leaves_what_runs_at_a_checkpoint_in_the_queue(servers: RunningWorkbench) -> None:
    ids = [create(steps=20_000), create()]
    stream = run_jobs(ids, servers.settings)
    for cards in stream:
        if cards[0].progress > 0:
            break
    stream.close()  # type: ignore[attr-defined]
    assert [servers.card(job_id).state for job_id in ids] == ["queued", "queued"]
    assert servers.card(ids[0]).attempt == 0  # stopped in order: no attempt is lost


def test_what_fell_silent_is_taken_back_without_a_clock(servers: RunningWorkbench) -> None:
    job_id = create()
    with database.transaction() as session:
        assert leases.claim(session, job_id, "gone", 0.1, 3) is not None
    *_, last = run_jobs([job_id], servers.settings)
    assert (last[0].state, last[0].attempt) == ("done", 2)


def test_what_waits_for_a_paused_job_is_not_waited_for(servers: RunningWorkbench) -> None:
    paused = create()
    behind = create(after=[paused])
    further = create(after=[behind])
    with database.transaction() as session:
        rows.request_stop(session, paused, "pause")
    *_, last = run_jobs([paused, behind, further, create()], servers.settings)
    assert [card.state for card in last] == ["paused", "queued", "queued", "done"]


def test_all_cards_are_read_together_and_idle_runners_write_nothing(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [create(steps=150), *(create() for _ in range(3))]
    statements: list[str] = []

    def note(*shown: Any) -> None:
        statements.append(shown[2])

    event.listen(Engine, "before_cursor_execute", note)
    cards_of(ids, servers.settings)
    event.remove(Engine, "before_cursor_execute", note)
    assert len([one for one in statements if "FROM jobs" in one]) == 1
    four = Settings(**{**servers.settings.model_dump(), "worker_slots": 4, "reconcile_seconds": 60.0})
    looks: list[float] = []
    monkeypatch.setattr(leases, "expire", lambda *_: looks.append(time.time()))
    assert [card.state for card in list(run_jobs(ids[:1], four))[-1]] == ["done"]
    assert looks == []


def test_a_machine_that_slept_lets_its_jobs_show_that_they_live(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[bool] = []
    monkeypatch.setattr(LeaseReaper, "_has_slept", lambda _: bool(evaluated.append(True)) or True)
    monkeypatch.setattr(leases, "expire", lambda *_: pytest.fail("it was taken back"))
    quick = Settings(**{**servers.settings.model_dump(), "reconcile_seconds": 0.01})
    list(run_jobs([create(steps=150)], quick))
    assert evaluated


def test_a_registry_that_is_away_for_a_moment_ends_nothing(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = {"run_most_urgent": 2, "cards_of": 2}

    def away_at_first(name: str) -> None:
        call = getattr(tasks, name)

        def calling(*given: Any) -> Any:
            if failures[name]:
                failures[name] -= 1
                raise RegistryUnavailableError("The registry does not respond.", "Try again in a moment.")
            return call(*given)

        monkeypatch.setattr(tasks, name, calling)

    for name in failures:
        away_at_first(name)
    *_, last = run_jobs([create(), create()], servers.settings)
    assert [card.state for card in last] == ["done", "done"]
    assert failures == {"run_most_urgent": 0, "cards_of": 0}


def test_a_registry_that_stays_away_ends_the_command(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise RegistryUnavailableError("The registry does not respond.", "Try again in a moment.")

    monkeypatch.setattr(tasks, "cards_of", away)
    short = Settings(**{**servers.settings.model_dump(), "lease_seconds": 1.0})
    with pytest.raises(RegistryUnavailableError):
        list(run_jobs([create()], short))
