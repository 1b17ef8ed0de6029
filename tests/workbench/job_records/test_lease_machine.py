"""Any order of claims, heartbeats, kills, duplicate messages, stops and clock jumps keeps the promises of leases.

A model beside the database knows who holds what. After each step: at most one worker can write, a job takes effect at
most once, a job that ended stays so until somebody asks for it, and every job can still come to an end.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from workbench.errors import JobError, LeaseLostError
from workbench.job_records import jobs, leases
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry import database
from workbench.schema import database_clock
from workbench.schema.job_tables import Job
from workbench.schema.tables import Mixture
from workbench.settings import Settings

LEASE, ATTEMPTS = 30.0, 3
SPEC = MakeSeed(name="seed", domains=["law"])


class Leases(RuleBasedStateMachine):
    """Workers that may be alive, dead, or suspended, at one registry whose clock may be set."""

    held = Bundle("held")  # (job, fence) of every claim ever given; its worker may write at any later moment
    empty_registry: Path
    real_now = staticmethod(database_clock.now)

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        shutil.copy(self.empty_registry, f"{self.folder.name}/registry.db")
        self.settings = Settings(home=Path(self.folder.name))
        self.ids: list[str] = []
        self.newest: dict[str, int] = {}  # the newest fence of each job
        self.effects: dict[str, int] = {}
        self.ahead = 0.0
        database_clock.now = lambda session: self.real_now(session) + self.ahead

    def teardown(self) -> None:
        database_clock.now = self.real_now
        database.close_engines()
        self.folder.cleanup()

    @initialize()
    def create(self) -> None:
        with database.transaction(self.settings) as session:
            self.ids = [jobs.create_job(session, SPEC) for _ in range(2)]
            self.ids.append(jobs.create_job(session, SPEC, after=self.ids[:1]))

    @rule(target=held, number=st.integers(0, 2))
    def deliver(self, number: int) -> object:
        """A message arrives, perhaps once more."""
        job_id = self.ids[number]
        with database.transaction(self.settings) as session:
            before = session.get_one(Job, job_id)
            was_free = before.state == "queued" or (
                before.state == "running" and (before.lease_until or 0.0) < database_clock.now(session)
            )
            fence = leases.claim(session, job_id, "worker", LEASE, ATTEMPTS)
        if fence is None:
            return multiple()
        assert was_free
        assert fence > self.newest.get(job_id, 0)
        if number == 2:
            assert self.state(self.ids[0]) == "done"
        self.newest[job_id] = fence
        return job_id, fence

    @rule(claim=held)
    def beat(self, claim: tuple[str, int]) -> None:
        could = self.holds(claim)
        try:
            with database.transaction(self.settings) as session:
                leases.renew(session, *claim, LEASE)
        except LeaseLostError:
            assert not could
        else:
            assert could

    @rule(claim=held, ending=st.sampled_from(["done", "failed", "paused"]))
    def end(self, claim: tuple[str, int], ending: str) -> None:
        """A worker finishes, perhaps one that slept through its lease; its result is committed with the end."""
        could, was_so = self.holds(claim), self.state(claim[0]) == ending and self.newest[claim[0]] == claim[1]
        try:
            with database.transaction(self.settings) as session:
                if leases.renew(session, *claim, LEASE) == "cancel":
                    leases.finish(session, *claim, "cancelled")
                    return
                if ending == "done":
                    session.add(Mixture(name=f"made by {claim[0]}"))
                leases.finish(session, *claim, ending)  # type: ignore[arg-type]
        except LeaseLostError:
            assert not could
        else:
            assert could or was_so
            self.effects[claim[0]] = self.effects.get(claim[0], 0) + (ending == "done")

    @rule(claim=held)
    def release(self, claim: tuple[str, int]) -> None:
        could = self.holds(claim)
        try:
            with database.transaction(self.settings) as session:
                leases.release(session, *claim)
        except LeaseLostError:
            assert not could
        else:
            assert could

    @rule(seconds=st.sampled_from([1.0, 29.0, 31.0, 3600.0, -1.0, -60.0, -86_400.0]))
    def jump(self, seconds: float) -> None:
        """Time passes, or somebody sets the clock."""
        self.ahead += seconds

    @rule()
    def reap(self) -> None:
        with database.transaction(self.settings) as session:
            now = database_clock.now(session)
            leases.expire(session, now, ATTEMPTS, LEASE)
            for job in session.query(Job).filter(Job.state == "running"):
                session.refresh(job)
                assert now <= (job.lease_until or 0.0) <= now + LEASE  # a dead worker's job comes back after one lease
            due = jobs.due(session, now, resend_seconds=0)
            jobs.mark_sent(session, due, now)

    @rule(number=st.integers(0, 2), how=st.sampled_from(["cancel", "pause", "resume", "retry"]))
    def ask(self, number: int, how: str) -> None:
        try:
            with database.transaction(self.settings) as session:
                if how in ("cancel", "pause"):
                    jobs.request_stop(session, self.ids[number], how)  # type: ignore[arg-type]
                else:
                    (jobs.resume if how == "resume" else jobs.retry)(session, self.ids[number])
        except JobError:
            pass

    @invariant()
    def a_job_takes_effect_only_one_time(self) -> None:
        assert all(count <= 1 for count in self.effects.values())
        for job_id in self.ids:
            assert (self.state(job_id) == "done") == (self.effects.get(job_id, 0) == 1)

    @invariant()
    def no_waiting_job_is_out_of_sight(self) -> None:
        """Whoever could start is offered to workers, whatever was sent and wherever the clock stands."""
        if self.ids:
            with database.reading(self.settings) as session:
                due = set(jobs.due(session, database_clock.now(session), resend_seconds=0))
                states = {id: session.get_one(Job, id).state for id in self.ids}
            can_start = {id for id in self.ids[:2] if states[id] == "queued"}
            can_start |= {self.ids[2]} if states[self.ids[2]] == "queued" and states[self.ids[0]] == "done" else set()
            assert due == can_start

    def state(self, job_id: str) -> str:
        with database.reading(self.settings) as session:
            return session.get_one(Job, job_id).state

    def holds(self, claim: tuple[str, int]) -> bool:
        """Whether the claim is the newest of a job that runs."""
        return self.newest[claim[0]] == claim[1] and self.state(claim[0]) == "running"


@pytest.fixture
def machine(empty_registry: Path, monkeypatch: pytest.MonkeyPatch) -> type[Leases]:
    monkeypatch.setattr(database_clock, "now", Leases.real_now)  # as it was, also after a failure
    Leases.empty_registry = empty_registry
    return Leases


def test_any_order_of_events_keeps_the_promises(machine: type[Leases]) -> None:
    quick = settings(max_examples=12, stateful_step_count=25, suppress_health_check=list(HealthCheck), database=None)
    run_state_machine_as_test(machine, settings=quick)
