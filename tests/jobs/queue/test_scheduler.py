"""The reconciler: what was lost comes back, what died is taken back, and nobody is called more than needed."""

from __future__ import annotations

import signal
import time

import pytest
from world import RunningWorkbench, create, eventually

from jobs.attempt.attempt import take
from jobs.queue import scheduler, submit, tasks
from jobs.queue.scheduler import Scheduler, num_calls
from workbench.errors import NoRegistryError, RegistryUnavailableError
from workbench.job_records import jobs as rows
from workbench.registry import database


def silence(job_id: str) -> None:
    """The job's lease has run out."""
    with database.transaction() as session:
        session.get_one(rows.Job, job_id).lease_until = time.time() - 1


def test_jobs_that_nobody_was_called_for_are_called_for(servers: RunningWorkbench) -> None:
    first = create()
    create(after=[first])
    Scheduler(servers.settings).round()
    assert num_calls(servers.settings) == 1
    assert servers.row(first).sent_at is not None


def test_a_long_queue_is_not_called_for_again_and_again(servers: RunningWorkbench) -> None:
    servers.settings = servers.settings.model_copy(update={"reconcile_seconds": 0.01})
    for _ in range(5):
        create()
    for _ in range(10):
        Scheduler(servers.settings).round()
        time.sleep(0.02)
    assert num_calls(servers.settings) == 5


def test_a_silent_job_is_taken_back_and_called_for(servers: RunningWorkbench) -> None:
    job_id = create()
    assert take(servers.settings, job_id, "somebody") is not None
    Scheduler(servers.settings).round()
    assert servers.card(job_id).state == "running"
    silence(job_id)
    assert servers.card(job_id).state == "interrupted"
    Scheduler(servers.settings).round()
    assert (servers.card(job_id).state, num_calls(servers.settings)) == ("queued", 1)


def test_a_registry_that_was_upgraded_meanwhile_is_left_to_newer_schedulers(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = create()
    assert take(servers.settings, job_id, "somebody") is not None
    silence(job_id)
    running = Scheduler(servers.settings)
    monkeypatch.setattr(database, "VERSION", "0001")  # as this program's, whose processes have read the registry
    with pytest.raises(NoRegistryError, match="Install the newer workbench"):
        running.round()
    assert servers.card(job_id).state == "interrupted"


def test_a_machine_that_just_woke_up_lets_its_jobs_show_that_they_live(servers: RunningWorkbench) -> None:
    job_id = create()
    assert take(servers.settings, job_id, "somebody") is not None
    silence(job_id)
    reconciler = Scheduler(servers.settings)
    reconciler._reaper._reaped_at -= 3600
    reconciler.round()
    assert servers.card(job_id).state == "interrupted"
    reconciler.round()
    assert servers.card(job_id).state == "queued"


@pytest.mark.parametrize(("of_scheduler", "of_worker"), [(60.0, 0.0), (0.0, -60.0)])
def test_a_worker_chooses_what_was_sent_however_wrong_the_clocks_are(
    servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch, of_scheduler: float, of_worker: float
) -> None:
    real, jobs = time.time, [create(), create()]
    monkeypatch.setattr(time, "time", lambda: real() + of_scheduler)
    Scheduler(servers.settings).round()
    monkeypatch.setattr(time, "time", lambda: real() + of_worker)
    with tasks.choose_job(servers.settings) as first, tasks.choose_job(servers.settings) as second:
        assert [first, second] == jobs


def test_a_registry_that_is_away_is_tried_again(servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    class Over:
        def wait(self, seconds: float) -> bool:
            assert 0.8 <= seconds <= 1.2
            rounds.append(1)
            return len(rounds) > 3

    def away(_: scheduler.LeaseReaper) -> None:
        raise RegistryUnavailableError("The registry does not answer.")

    monkeypatch.setattr(scheduler.LeaseReaper, "reap", away)
    Scheduler(servers.settings).run(Over())  # type: ignore[arg-type]
    assert len(rounds) == 4


def test_a_sweep_is_rare_and_spares_what_is_young(servers: RunningWorkbench) -> None:
    young = servers.settings.artifacts_folder / ("a" * 32)
    young.mkdir(parents=True)
    reconciler = Scheduler(servers.settings)
    reconciler._swept_at -= scheduler.SWEEP_SECONDS + 1
    reconciler.round()
    assert young.exists()
    assert time.monotonic() - reconciler._swept_at < 60


def test_the_process_works_and_ends_on_request(servers: RunningWorkbench) -> None:
    job_id = create()
    process = servers.start("jobs.queue.scheduler")
    eventually(lambda: num_calls(servers.settings) == 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    submit.request_stop(job_id, "cancel")
