"""What a worker may do to its job, and what it may not once the job is another's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from workbench.errors import LeaseLostError
from workbench.job_records import jobs, leases
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry import database
from workbench.schema import database_clock
from workbench.schema.job_states import CHECKPOINT
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact

LEASE, ATTEMPTS = 30.0, 3
SPEC = MakeSeed(name="seed", domains=["law"])


@pytest.fixture
def session(registry: str) -> Iterator[Session]:
    """A transaction that writes, on each database."""
    assert registry
    with database.transaction() as one:
        yield one


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass, for this machine and for the database."""
    passed = 0.0
    real, real_now = time.time, database_clock.now

    def wait(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(time, "time", lambda: real() + passed)
    monkeypatch.setattr(database_clock, "now", lambda session: real_now(session) + passed)
    return wait


def new_job(session: Session, **job_spec: Any) -> str:
    return jobs.create_job(session, SPEC, **job_spec)


def claim(session: Session, job_id: str, owner: str = "worker") -> int | None:
    return leases.claim(session, job_id, owner, LEASE, ATTEMPTS)


def state(session: Session, job_id: str) -> str:
    return jobs.get_job(session, job_id).state


def shown(session: Session, job_id: str) -> list[str]:
    return [event.message for event in jobs.events(session, job_id)]


# claims ----------------------------------------------------------------------------------------------


def test_a_claimed_job_runs_and_cannot_be_claimed_again(session: Session) -> None:
    job = new_job(session)
    assert claim(session, job, "first") == 1
    assert claim(session, job, "second") is None
    card = jobs.get_job(session, job)
    assert (card.state, card.attempt, card.owner) == ("running", 1, "first")
    assert shown(session, job) == ["Queued.", "Started by first."]


@pytest.mark.parametrize("ending", ["done", "failed", "cancelled", "paused"])
def test_an_ended_job_cannot_be_claimed(session: Session, ending: Any) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    leases.finish(session, job, fence, ending)
    assert claim(session, job) is None
    assert state(session, job) == ending


def test_a_job_nobody_knows_cannot_be_claimed(session: Session) -> None:
    assert claim(session, "f" * 32) is None


def test_a_silent_worker_loses_its_job_to_the_next(session: Session, clock: Callable[[float], None]) -> None:
    job = new_job(session)
    old = claim(session, job, "silent")
    clock(LEASE + 1)
    assert state(session, job) == "interrupted"
    new = claim(session, job, "next")
    assert old == 1
    assert new == 2
    assert jobs.get_job(session, job).owner == "next"


def test_who_lost_its_job_can_write_nothing(session: Session, clock: Callable[[float], None]) -> None:
    job = new_job(session)
    old = claim(session, job)
    assert old
    clock(LEASE + 1)
    assert claim(session, job) == old + 1
    before = jobs.get_job(session, job)
    for write in (
        lambda: leases.renew(session, job, old, LEASE),
        lambda: leases.record(session, job, old, progress=0.9, metrics=[("loss", 1, 2.0)]),
        lambda: leases.finish(session, job, old, "done"),
        lambda: leases.release(session, job, old),
    ):
        with pytest.raises(LeaseLostError, match="lost its lease"):
            write()
    assert jobs.get_job(session, job) == before
    assert jobs.metrics(session, job) == []


def test_a_late_sign_of_life_counts_while_nobody_took_over(session: Session, clock: Callable[[float], None]) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    clock(LEASE + 1)
    assert leases.renew(session, job, fence, LEASE) == ""
    assert state(session, job) == "running"


def test_each_renewal_holds_for_a_full_lease(session: Session, clock: Callable[[float], None]) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    for _ in range(3):
        clock(LEASE * 0.8)
        leases.renew(session, job, fence, LEASE)
    assert claim(session, job) is None
    assert state(session, job) == "running"


def test_a_job_that_never_answers_fails_after_its_attempts(session: Session, clock: Callable[[float], None]) -> None:
    job = new_job(session)
    for _ in range(ATTEMPTS):
        assert claim(session, job)
        clock(LEASE + 1)
    assert claim(session, job) is None
    card = jobs.get_job(session, job)
    assert card.state == "failed"
    assert "died or did not respond 3 times, without an error message" in card.error
    assert "log" in card.next_step
    assert "retry the job" in card.next_step


def test_a_released_job_is_claimed_immediately_and_only_so_often(session: Session) -> None:
    job = new_job(session)
    for number in range(ATTEMPTS):
        fence = claim(session, job)
        assert fence == number + 1
        leases.release(session, job, fence, "The process died (signal 9).")
        assert jobs.due(session, time.time()) == [job]
    assert claim(session, job) is None
    assert state(session, job) == "failed"
    assert "Back in the queue: The process died (signal 9)." in shown(session, job)


def falls_silent(session: Session, job_id: str, fence: int) -> None:
    leases.expire(session, time.time() + LEASE + 1, ATTEMPTS)


def is_let_go(session: Session, job_id: str, fence: int) -> None:
    leases.release(session, job_id, fence)


def lapses(session: Session, job_id: str, fence: int) -> None:
    """Nobody looks until the next worker claims it."""
    session.execute(update(Job).where(Job.id == job_id).values(lease_until=0))


def saves(session: Session, job_id: str) -> None:
    leases.add_event(session, job_id, "Checkpoint at step 50.", kind=CHECKPOINT)


def makes(session: Session, job_id: str) -> None:
    session.add(Artifact(kind="scores", sha256="0" * 64, job_id=job_id, created_at=time.time()))
    session.flush()


@pytest.mark.parametrize("stops", [falls_silent, is_let_go, lapses])
@pytest.mark.parametrize("progresses", [saves, makes])
def test_only_attempts_that_left_nothing_new_are_counted(
    session: Session, clock: Callable[[float], None], stops: Any, progresses: Any
) -> None:
    job = new_job(session)
    for has_progress in [True] * (ATTEMPTS + 2) + [False] * (ATTEMPTS - 1) + [True] + [False] * ATTEMPTS:
        fence = claim(session, job)
        assert fence
        if has_progress:
            progresses(session, job)
        clock(1)
        stops(session, job, fence)
    assert claim(session, job) is None
    assert state(session, job) == "failed"
    assert f"{ATTEMPTS} times" in jobs.get_job(session, job).error


def test_a_worker_may_be_stopped_in_order_any_number_of_times(session: Session) -> None:
    job = new_job(session)
    for _ in range(ATTEMPTS + 2):
        fence = claim(session, job)
        assert fence
        leases.release(session, job, fence, "Its worker was stopped.", attempt_counts=False)
    assert state(session, job) == "queued"


# records ---------------------------------------------------------------------------------------------


def test_progress_is_kept_within_its_bounds(session: Session) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    leases.record(session, job, fence, progress=1.7, note="step 3", eta_seconds=12.5, eta_range=(10.0, 20.0))
    card = jobs.get_job(session, job)
    assert (card.progress, card.progress_note, card.eta_seconds) == (1.0, "step 3", 12.5)
    leases.record(session, job, fence, note="step 4")
    assert jobs.get_job(session, job).eta_seconds == 12.5
    leases.record(session, job, fence, progress=0.5)
    assert jobs.get_job(session, job).eta_seconds is None


def test_the_newest_value_of_a_step_stands(session: Session) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    leases.record(session, job, fence, metrics=[("loss", step, 9.0) for step in range(1200)])
    leases.record(session, job, fence, metrics=[("loss", 1199, 5.0), ("loss", 1199, 4.0), ("dev/a", 3, 1.0)])
    points = {(metric.name, metric.step): metric.value for metric in jobs.metrics(session, job)}
    assert len(points) == 1201
    assert points["loss", 1199] == 4.0


def test_numbers_that_are_none_have_no_place_in_a_curve(session: Session) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    leases.record(session, job, fence, metrics=[("loss", 1, math.nan), ("loss", 2, math.inf), ("loss", 3, 1.0)])
    assert [metric.step for metric in jobs.metrics(session, job)] == [3]


def test_text_of_any_kind_can_be_an_event(session: Session) -> None:
    job = new_job(session, title="half \ud800")
    fence = claim(session, job)
    assert fence
    leases.record(session, job, fence, note="nul \x00")
    leases.finish(session, job, fence, "failed", error="file \udcff", next_step="\x00")
    assert jobs.get_job(session, job).error == "file ?"


# endings ---------------------------------------------------------------------------------------------


def test_saying_the_same_end_twice_is_fine(session: Session) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    for _ in range(2):
        leases.finish(session, job, fence, "done", result={"expert": "law"})
    card = jobs.get_job(session, job)
    assert (card.state, card.progress, card.result) == ("done", 1.0, {"expert": "law"})
    assert shown(session, job)[-2:] == ["Started by worker.", "Done."]


def test_an_end_cannot_be_changed(session: Session) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    leases.finish(session, job, fence, "cancelled")
    with pytest.raises(LeaseLostError):
        leases.finish(session, job, fence, "done")
    assert state(session, job) == "cancelled"


def test_what_was_made_and_the_end_are_one(registry: str) -> None:
    assert registry
    with database.transaction() as session:
        job = new_job(session)
        fence = claim(session, job)
    assert fence
    with pytest.raises(ZeroDivisionError), database.transaction() as session:
        leases.finish(session, job, fence, "done")
        raise ZeroDivisionError  # registering failed
    with database.reading() as session:
        assert state(session, job) == "running"


# those that nobody works on --------------------------------------------------------------------------


def test_dead_jobs_are_taken_back_and_sent_again(session: Session, clock: Callable[[float], None]) -> None:
    job, other = new_job(session), new_job(session)
    jobs.mark_sent(session, [job, other], time.time())
    claim(session, job)
    clock(LEASE + 1)
    claim(session, other)
    assert leases.expire(session, time.time(), ATTEMPTS) == [job]
    assert (jobs.due(session, time.time()), state(session, other)) == ([job], "running")
    assert shown(session, job)[-1] == "Back in the queue: its worker stopped responding."


@pytest.mark.parametrize(("how", "final"), [("cancel", "cancelled"), ("pause", "paused")])
def test_a_stop_outlives_the_worker_that_got_it(
    session: Session, clock: Callable[[float], None], how: Any, final: str
) -> None:
    job = new_job(session)
    claim(session, job)
    jobs.request_stop(session, job, how)
    clock(LEASE + 1)
    assert claim(session, job) is None
    assert state(session, job) == final


# clocks that disagree --------------------------------------------------------------------------------


@pytest.fixture
def machine_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets this machine's clock that many seconds ahead of the true time; the database's stays."""
    real = time.time
    return lambda seconds: monkeypatch.setattr(time, "time", lambda: real() + seconds)


@pytest.mark.parametrize(("of_sender", "of_worker"), [(0, -60), (60, 0), (-3600, 3600)])
def test_a_worker_sees_what_a_scheduler_sent_whatever_their_clocks_say(
    session: Session, machine_clock: Callable[[float], None], of_sender: float, of_worker: float
) -> None:
    job = new_job(session)
    machine_clock(of_sender)
    jobs.mark_sent(session, [job], database_clock.now(session))
    machine_clock(of_worker)
    assert jobs.due(session, database_clock.now(session), resend_seconds=0) == [job]
    assert claim(session, job)


@pytest.mark.parametrize("ahead", [-60, 60, 86_400])
def test_a_clock_that_is_wrong_takes_no_job_away(
    session: Session, machine_clock: Callable[[float], None], ahead: float
) -> None:
    job = new_job(session)
    fence = claim(session, job, "right")
    assert fence
    machine_clock(ahead)
    assert state(session, job) == "running"
    assert claim(session, job, "wrong") is None
    assert leases.renew(session, job, fence, LEASE) == ""
    machine_clock(0)
    assert leases.expire(session, database_clock.now(session), ATTEMPTS, LEASE) == []
    assert state(session, job) == "running"


def test_a_worker_whose_clock_is_ahead_that_dies_is_noticed_after_one_lease(
    session: Session, machine_clock: Callable[[float], None]
) -> None:
    job = new_job(session)
    machine_clock(3600)
    claim(session, job)
    machine_clock(0)
    assert leases.expire(session, database_clock.now(session) + LEASE + 1, ATTEMPTS) == [job]


@pytest.mark.parametrize("behind", [-60, 60])
def test_progress_counts_on_a_machine_whose_clock_is_wrong(
    session: Session, machine_clock: Callable[[float], None], behind: float
) -> None:
    job = new_job(session)
    fence = claim(session, job)
    assert fence
    machine_clock(-behind)
    saves(session, job)
    assert leases.has_progressed(session, job)
    leases.release(session, job, fence)
    machine_clock(0)
    assert claim(session, job)
    assert not leases.has_progressed(session, job)  # what the attempt before left is not its own


def test_a_clock_that_is_set_back_keeps_no_dead_job_running_and_no_waiting_one_unsent(
    session: Session, clock: Callable[[float], None]
) -> None:
    dead, living, waiting = new_job(session), new_job(session), new_job(session)
    claim(session, dead)
    fence = claim(session, living)
    assert fence
    jobs.mark_sent(session, [waiting], database_clock.now(session))
    clock(-3600)
    assert jobs.due(session, database_clock.now(session), resend_seconds=15) == [waiting]
    assert leases.expire(session, database_clock.now(session), ATTEMPTS, LEASE) == []  # both may live
    clock(LEASE - 1)
    leases.renew(session, living, fence, LEASE)
    clock(2)
    assert leases.expire(session, database_clock.now(session), ATTEMPTS, LEASE) == [dead]


def test_equal_priorities_start_in_order_of_submission_whatever_the_clocks_say(
    session: Session, machine_clock: Callable[[float], None]
) -> None:
    submitted = []
    for ahead in (0, 60, -60, -60, 3600, 0):
        machine_clock(ahead)
        submitted.append(new_job(session))
    machine_clock(0)
    assert jobs.due(session, database_clock.now(session)) == submitted
