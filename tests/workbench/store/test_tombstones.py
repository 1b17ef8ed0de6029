"""What the registry knows of a shared store's garbage, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workbench.conftest import World
from workbench.job_records import jobs, leases
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry.database import reading, transaction
from workbench.schema.tables import Artifact
from workbench.settings import get_settings
from workbench.store import tombstones
from workbench.store.storage import Storage, StoredIds, get_storage

pytestmark = pytest.mark.usefixtures("registry")


@pytest.fixture
def storage(registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    assert registry
    (tmp_path / "mount").mkdir()
    monkeypatch.setenv("WORKBENCH_STORE", f"file://{tmp_path}/mount")
    get_settings.cache_clear()
    return get_storage()


def garbage(*ids: str, seconds: float = 0) -> set[str]:
    with reading() as session:
        return tombstones.garbage(session, StoredIds(frozenset(ids), frozenset(ids)), seconds)


def test_an_artifact_is_garbage_from_its_deletion_until_it_has_a_row_again(storage: Storage) -> None:
    with transaction() as session:
        id, other = World(session, storage).artifact().id, World(session, storage).artifact().id
    assert garbage(id, other) == set()
    with transaction() as session:
        row = session.get_one(Artifact, id)
        values = {name: getattr(row, name) for name in ("id", "kind", "sha256")}
        session.delete(row)
    assert (garbage(id, other), garbage(id, seconds=60)) == ({id}, set())
    with reading() as session:
        assert tombstones.deleted_among(session, [id, other]) == {id}
    with transaction() as session:
        session.add(Artifact(**values))
    assert garbage(id, other) == set()


def test_a_deletion_that_is_rolled_back_is_none(storage: Storage) -> None:
    with transaction() as session:
        id = World(session, storage).artifact().id
    with pytest.raises(ZeroDivisionError), transaction() as session:
        session.delete(session.get_one(Artifact, id))
        session.flush()
        raise ZeroDivisionError
    assert garbage(id) == set()


def test_what_a_job_noted_is_garbage_once_it_cannot_run_again(storage: Storage) -> None:
    made = "a" * 32
    with transaction() as session:
        job_id = jobs.create_job(session, MakeSeed(name="s", domains=["law"]))
        tombstones.note_upload(session, made, job_id)
        fence = leases.claim(session, job_id, "me", 30, 3)
        assert fence is not None
    assert garbage(made, job_id) == set()
    with transaction() as session:
        leases.finish(session, job_id, fence, "failed")
    assert garbage(made, job_id) == set()
    with transaction() as session:
        jobs.retry(session, job_id)
        fence = leases.claim(session, job_id, "me", 30, 3)
        assert fence is not None
        leases.finish(session, job_id, fence, "done")
    assert garbage(made, job_id) == {made, job_id}
    with transaction() as session:
        assert jobs.delete_job(session, job_id)
    assert garbage(made, job_id) == {made}  # the job's own checkpoints have no tombstone
    with reading() as session:
        assert tombstones.of_ended_jobs(session) == {made}
        assert tombstones.unknown_among(session, [made, job_id]) == {job_id}
