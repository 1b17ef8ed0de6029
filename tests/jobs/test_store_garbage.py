"""Machines with one registry and one store: what one deletes goes everywhere, what a job may need stays."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import delete, update
from tiny_kind import job_spec
from world import RunningWorkbench

from jobs import garbage_collection
from jobs.attempt.attempt import take
from jobs.attempt.job_log import upload_log
from jobs.attempt.work import Work
from jobs.queue import submit
from jobs.queue.scheduler import SWEEP_SECONDS, Scheduler
from workbench.errors import LeaseLostError, StoreFailedError
from workbench.job_records import leases
from workbench.registry import database
from workbench.schema.base import Base
from workbench.schema.tables import Artifact, AuditEntry, Tombstone
from workbench.settings import Settings
from workbench.store import ownership
from workbench.store.artifacts import register_artifact
from workbench.store.object_store import ObjectStore, object_store
from workbench.store.rebuild import rebuild
from workbench.store.storage import OWNER, Storage, get_storage

DAY = 24 * 3600.0


@dataclass
class Machine:
    """A home of its own; the registry and the store are everybody's."""

    settings: Settings

    @property
    def storage(self) -> Storage:
        return get_storage(self.settings)

    def make(self) -> str:
        """An artifact with a row, two days old."""
        id = uuid.uuid4().hex
        with self.storage.new(id) as folder:
            (folder / "model").write_text(id)
        with database.transaction(self.settings) as session:
            register_artifact(session, self.storage, id, "thing")
        return self.age(id)

    def fetch(self, id: str) -> str:
        """A cached copy, which this machine has recorded."""
        assert self.storage.path(id).is_dir()
        self.sweep()
        return self.age(id)

    def age(self, id: str) -> str:
        then = time.time() - 2 * DAY
        for path in (self.storage.folder / OWNER, self.storage.place(id), *self.storage.place(id).iterdir()):
            if path.exists():
                os.utime(path, (then, then))
        return id

    def delete(self, id: str) -> None:
        with database.transaction(self.settings) as session:
            session.delete(session.get_one(Artifact, id))

    def sweep(self) -> None:
        garbage_collection.sweep(self.settings)

    def start(self, job_id: str) -> Work:
        """The job's work, with an artifact that has no row yet, a checkpoint and a log."""
        claim = take(self.settings, job_id, "somebody")
        assert claim is not None
        work = Work(claim, self.settings)
        with work.storage.new(uuid.uuid4().hex) as folder:
            (folder / "tokens").write_text("tokens")
        (work.folder / "step").write_text("7")
        assert work.checkpoints is not None
        work.checkpoints.save(work.folder)
        work.log.write_text("Attempt 1\n")
        upload_log(self.settings, job_id)
        return work


@pytest.fixture
def here(servers: RunningWorkbench, tmp_path: Path) -> Machine:
    (tmp_path / "mount").mkdir()
    return Machine(servers.settings.model_copy(update={"store": f"file://{tmp_path}/mount"}))


@pytest.fixture
def there(here: Machine, tmp_path: Path) -> Machine:
    same = {"store": here.settings.store, "database_url": here.settings.database}
    return Machine(Settings(home=tmp_path / "there", **same))


@pytest.fixture
def store(here: Machine) -> ObjectStore:
    shared = object_store(here.settings.store)
    assert shared is not None
    return shared


def lose_rows(settings: Settings) -> None:
    """A registry without any row, tombstones included, but for the audit log, whose rows cannot be deleted."""
    with database.get_engine(settings).begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            if table.name != AuditEntry.__tablename__:
                connection.execute(table.delete())


# what one machine deletes --------------------------------------------------------------------------------


def test_a_copy_of_what_another_machine_deleted_goes_to_the_trash(here: Machine, there: Machine) -> None:
    kept, deleted = here.make(), here.make()
    for id in (kept, deleted):
        there.fetch(id)
    here.delete(deleted)
    with database.reading(there.settings) as session:
        state = ownership.state_of(session, there.storage)
    assert (state.known, state.deleted, state.missing) == ({kept}, {deleted}, set())
    there.sweep()
    assert there.storage.ids() == {kept}
    assert there.storage.trash.ids() == {deleted}
    assert not there.storage.records.is_live(deleted)


def test_a_machine_whose_copies_were_all_deleted_elsewhere_sweeps_them(here: Machine, there: Machine) -> None:
    ids = [here.make() for _ in range(3)]
    for id in ids:
        there.fetch(id)
    for id in ids:
        here.delete(id)
    there.sweep()  # not refused: the registry lost nothing
    assert there.storage.trash.ids() == set(ids)


def test_what_another_machine_deleted_is_not_rebuilt(here: Machine, there: Machine) -> None:
    deleted, lost = (there.fetch(here.make()) for _ in range(2))
    here.delete(deleted)
    with database.get_engine(here.settings).begin() as connection:
        connection.execute(delete(Artifact).where(Artifact.id == lost))  # as in an older backup
    with database.transaction(there.settings) as session:
        assert rebuild(session, there.storage).made == {"artifact": 1}
        assert session.get(Artifact, lost) is not None


def test_after_a_lost_registry_each_machine_rebuilds_what_no_machine_before_called_deleted(
    here: Machine, there: Machine
) -> None:
    deleted, kept = (there.fetch(here.make()) for _ in range(2))
    only_there = there.make()
    here.delete(deleted)
    lose_rows(here.settings)
    for machine in (here, there):
        with database.transaction(machine.settings) as session:
            rebuild(session, machine.storage)
    with database.reading(here.settings) as session:
        assert {id for id in (deleted, kept, only_there) if session.get(Artifact, id)} == {kept, only_there}
    garbage_collection.sweep_store(here.settings)
    there.sweep()
    assert there.storage.ids() == {kept, only_there}


# the store's own copies ----------------------------------------------------------------------------------


def make_older(settings: Settings, id: str, seconds: float) -> None:
    with database.transaction(settings) as session:
        session.execute(update(Tombstone).where(Tombstone.id == id).values(at=Tombstone.at - seconds))


def test_the_store_keeps_what_was_deleted_as_long_as_a_trash_does(here: Machine, store: ObjectStore) -> None:
    kept, young, old = here.make(), here.make(), here.make()
    for id in (young, old):
        here.delete(id)
    make_older(here.settings, old, 31 * DAY)
    assert garbage_collection.sweep_store(here.settings) == [f"artifacts/{old}"]
    assert store.ids("artifacts") == {kept, young}
    assert garbage_collection.sweep_store(here.settings) == []


def test_what_a_running_job_may_still_read_stays_in_the_store(here: Machine, store: ObjectStore) -> None:
    deleted, job_id = here.make(), submit.submit(job_spec())
    work = here.start(job_id)
    here.delete(deleted)
    garbage_collection.sweep_store(here.settings, 0)
    assert deleted in store.ids("artifacts")
    with database.transaction() as session:
        leases.finish(session, job_id, work.claim.fence, "failed")
    garbage_collection.sweep_store(here.settings, 0)
    assert deleted not in store.ids("artifacts")


def test_what_is_restored_from_a_trash_is_in_the_store_again(here: Machine, there: Machine, store: ObjectStore) -> None:
    here.make()
    id = here.make()
    here.delete(id)
    here.sweep()
    assert garbage_collection.sweep_store(here.settings, 0) == [f"artifacts/{id}"]
    garbage_collection.restore(here.settings, garbage_collection.trash_entries(here.settings))
    assert there.fetch(id) in there.storage.ids()
    garbage_collection.sweep_store(here.settings, 0)
    assert id in store.ids("artifacts")


def test_what_an_older_registry_does_not_know_stays_in_the_store(here: Machine, store: ObjectStore) -> None:
    lost, job_id = here.make(), submit.submit(job_spec())
    here.start(job_id)
    lose_rows(here.settings)
    assert garbage_collection.sweep_store(here.settings, 0) == []
    assert lost in store.ids("artifacts")
    assert store.ids("checkpoints") == store.ids("logs") == {job_id}


def test_a_registry_that_adopts_the_artifacts_sweeps_the_store_of_what_it_does_not_know(
    here: Machine, store: ObjectStore
) -> None:
    here.make()
    here.start(submit.submit(job_spec()))
    lose_rows(here.settings)
    known, stored = here.make(), here.storage.stored_ids()
    with database.transaction(here.settings) as session:
        assert ownership.adopt(session, here.storage, stored) == 2
    garbage_collection.sweep_store(here.settings, 0)
    assert store.ids("artifacts") == {known}
    assert store.ids("checkpoints") | store.ids("logs") == set()


# what jobs leave ------------------------------------------------------------------------------------------


def test_what_a_job_left_goes_from_the_store_when_it_is_done(here: Machine, store: ObjectStore) -> None:
    """It was killed at its very end: after the commit, and before it removed its checkpoints."""
    here.make()
    job_id = submit.submit(job_spec())
    work = here.start(job_id)
    assert garbage_collection.sweep_store(here.settings, 0) == []
    [unregistered] = [id for id in store.ids("artifacts") if not here.storage.records.is_live(id)]
    with database.transaction() as session:
        leases.finish(session, job_id, work.claim.fence, "done")
    scheduler = Scheduler(here.settings)
    scheduler._swept_at -= SWEEP_SECONDS + 1
    scheduler.round()
    assert store.ids("checkpoints") == set()
    assert unregistered not in store.ids("artifacts")
    with database.reading() as session:
        assert session.get(Tombstone, unregistered) is None


@pytest.mark.parametrize("ending", ["failed", "paused"])
def test_what_a_job_may_go_on_from_stays_in_the_store(here: Machine, store: ObjectStore, ending: str) -> None:
    job_id = submit.submit(job_spec())
    work = here.start(job_id)
    with database.transaction() as session:
        leases.finish(session, job_id, work.claim.fence, ending)  # type: ignore[arg-type]
    assert garbage_collection.sweep_store(here.settings, 0) == []
    assert store.ids("checkpoints") == {job_id}
    assert len(store.ids("artifacts")) == 1


def test_what_remains_of_a_done_job_is_its_log(here: Machine, store: ObjectStore) -> None:
    job_id = submit.submit(job_spec())
    work = here.start(job_id)
    with database.transaction() as session:
        leases.finish(session, job_id, work.claim.fence, "done")
    garbage_collection.sweep_store(here.settings, 0)
    assert (store.ids("checkpoints"), store.ids("logs")) == (set(), {job_id})


def test_checkpoints_and_the_log_of_a_job_that_was_deleted_while_the_store_was_away_go_later(
    here: Machine, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit.submit(job_spec())
    work = here.start(job_id)
    with database.transaction() as session:
        leases.finish(session, job_id, work.claim.fence, "failed")

    def away(*_: object) -> None:
        raise StoreFailedError("The store does not answer.", "Check it.")

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "remove", away)
        assert submit.delete(job_id, settings=here.settings)
    assert store.ids("checkpoints") == store.ids("logs") == {job_id}
    garbage_collection.sweep_store(here.settings)
    assert store.ids("checkpoints") | store.ids("logs") | store.ids("artifacts") == set()
    with database.reading() as session:
        assert session.query(Tombstone).count() == 0


def test_an_attempt_without_a_lease_uploads_no_file_of_an_artifact(here: Machine, store: ObjectStore) -> None:
    job_id = submit.submit(job_spec())
    work = here.start(job_id)
    before = store.ids("artifacts")
    with database.transaction() as session:
        leases.release(session, job_id, work.claim.fence)
    with pytest.raises(LeaseLostError), work.storage.new("c" * 32) as folder:
        (folder / "tokens").write_text("late")
    assert store.ids("artifacts") == before


def test_temporary_files_of_killed_uploads_go_after_a_day(here: Machine, store: ObjectStore) -> None:
    id = here.make()
    mount = Path(here.settings.store.removeprefix("file://"))
    old, young = (mount / "artifacts" / id / f".model.{name}.new" for name in ("1", "2"))
    for file in (old, young):
        file.touch()
    os.utime(old, (time.time() - 25 * 3600,) * 2)
    assert garbage_collection.sweep_store(here.settings) == [f"artifacts/{id}/{old.name}"]
    assert store.names(f"artifacts/{id}") == {"manifest.json", "model", young.name}
