"""Checkpoints go to the shared store beside the work: as they were, complete or not at all, and only under a lease."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from world import RunningWorkbench, create, eventually

from engine.events import Event, Saved
from jobs.attempt.attempt import _uploading, run_here
from jobs.attempt.checkpoint_upload import CheckpointUpload
from jobs.attempt.heartbeat import Heartbeat
from jobs.attempt.reporting import Reporter
from jobs.attempt.work import JobClaim, Work
from jobs.queue import submit
from workbench.errors import StoreFailedError
from workbench.settings import Settings, get_settings
from workbench.store.object_store import ObjectStore
from workbench.store.stored_checkpoints import StoredCheckpoints

JOB = "a" * 32
SECONDS = 60  # against a hang


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "mount").mkdir()
    return ObjectStore(f"file://{tmp_path}/mount")


class Gate:
    """Holds uploads up until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        put = ObjectStore.put

        def held(store: ObjectStore, path: Path, name: str) -> None:
            self.reached.set()
            assert self.opened.wait(SECONDS), "the work waits for its upload"
            put(store, path, name)

        monkeypatch.setattr(ObjectStore, "put", held)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.opened.set()


def write(folder: Path, step: int) -> Saved:
    """Replaces the checkpoint of a folder, as a training does."""
    folder.mkdir(exist_ok=True)
    for name in ("weights", "moments"):
        aside = folder / f".{name}.new"
        aside.write_text(f"{name} {step}")
        aside.rename(folder / name)
    return Saved(step, str(folder))


def upload_of(store: ObjectStore, folder: Path, may_upload: Callable[[], bool] = lambda: True) -> CheckpointUpload:
    folder.mkdir(exist_ok=True)
    return CheckpointUpload(StoredCheckpoints(store, JOB, 1), folder, may_upload)


def restored(store: ObjectStore, folder: Path) -> dict[str, str]:
    StoredCheckpoints(store, JOB, 2).restore(folder)
    return {path.name: path.read_text() for path in folder.glob("[!.]*")}


def test_a_checkpoint_is_uploaded_as_it_was_and_of_those_that_wait_the_newest(
    store: ObjectStore, tmp_path: Path, gate: Gate
) -> None:
    folder = tmp_path / "work"
    upload = upload_of(store, folder)
    first = write(folder, 1)
    upload.add(first)
    assert gate.reached.wait(SECONDS)
    upload.add(write(folder, 2))
    third = write(folder, 3)
    upload.add(third)
    write(folder, 4)  # is not saved yet
    gate.opened.set()
    assert upload.wait() == [first, third]
    upload.stop()
    assert restored(store, tmp_path / "other") == {"weights": "weights 3", "moments": "moments 3"}
    assert len(store.names(f"checkpoints/{JOB}/files")) == 2
    assert {path.name for path in folder.iterdir()} == {"weights", "moments", ".synced.json"}


def test_without_the_lease_no_further_file_is_uploaded_and_the_checkpoint_does_not_count(
    store: ObjectStore, tmp_path: Path
) -> None:
    lease = iter([True, False])
    upload = upload_of(store, tmp_path / "work", lambda: next(lease))
    upload.add(write(tmp_path / "work", 1))
    assert upload.wait() == []
    upload.stop()
    assert len(store.names(f"checkpoints/{JOB}/files")) == 1
    assert restored(store, tmp_path / "other") == {}


def test_after_a_stop_nothing_more_is_uploaded(store: ObjectStore, tmp_path: Path, gate: Gate) -> None:
    upload = upload_of(store, tmp_path / "work")
    upload.add(write(tmp_path / "work", 1))
    assert gate.reached.wait(SECONDS)
    upload.add(write(tmp_path / "work", 2))
    stopping = threading.Thread(target=upload.stop)
    stopping.start()
    eventually(lambda: upload._is_over, SECONDS)
    gate.opened.set()
    stopping.join(SECONDS)
    assert not stopping.is_alive()
    assert restored(store, tmp_path / "other") == {}
    assert not list((tmp_path / "work").glob(".upload*"))


def test_where_there_are_no_hard_links_files_are_copied(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("jobs.attempt.checkpoint_upload.os.link", refuse)
    upload = upload_of(store, tmp_path / "work")
    upload.add(write(tmp_path / "work", 1))
    upload.wait()
    upload.stop()
    assert restored(store, tmp_path / "other") == {"weights": "weights 1", "moments": "moments 1"}


def test_if_the_work_fails_its_last_checkpoint_is_uploaded_first(store: ObjectStore, home: Path) -> None:
    work = Work(JobClaim(JOB, 1, 1, "me"), Settings(home=home, store=store.url))
    heartbeat = cast(Heartbeat, SimpleNamespace(has_lease=lambda: True, reporter=Reporter()))
    with pytest.raises(ZeroDivisionError), _uploading(work, heartbeat) as upload:
        assert upload is not None
        upload.add(write(work.folder, 7))
        raise ZeroDivisionError
    assert restored(store, home / "other")["weights"] == "weights 7"


# around an attempt ----------------------------------------------------------------------------------------


@pytest.fixture
def job_id(servers: RunningWorkbench, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """A job of many steps in a workbench with a shared store."""
    monkeypatch.setenv("WORKBENCH_STORE", store.url)
    get_settings.cache_clear()
    servers.settings = get_settings()
    return create(steps=5000)


def run_until(job_id: str, is_enough: Callable[[Event], Any]) -> None:
    events = run_here(job_id)
    while not is_enough(next(events)):
        pass
    events.close()  # type: ignore[attr-defined]


def test_the_work_goes_on_while_its_checkpoint_is_uploaded(
    servers: RunningWorkbench, job_id: str, store: ObjectStore, gate: Gate
) -> None:
    def at_step_40(event: Event) -> bool:
        if getattr(event, "step", 0) < 40:
            return False
        assert gate.reached.is_set()  # by the checkpoint of step 10
        assert not any(one.startswith("Checkpoint") for one in servers.events(job_id))  # it does not count yet
        gate.opened.set()
        return True

    run_until(job_id, at_step_40)
    assert servers.card(job_id).state == "paused"
    other = servers.settings.root / "other"
    StoredCheckpoints(store, job_id, 2).restore(other)
    assert int((other / "step").read_text()) >= 40  # that of the pause


def test_a_checkpoint_counts_when_it_is_uploaded(servers: RunningWorkbench, job_id: str) -> None:
    run_until(job_id, lambda _: any(one.startswith("Checkpoint") for one in servers.events(job_id)))
    assert servers.card(job_id).state == "paused"


def test_an_upload_that_fails_pauses_the_job_with_cause_and_next_step(
    servers: RunningWorkbench, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreFailedError("The store is full.", "Free some space there, then resume the job.")

    with monkeypatch.context() as patched, pytest.raises(StoreFailedError):
        patched.setattr(ObjectStore, "put", refuse)
        list(run_here(job_id))
    card = servers.card(job_id)
    assert (card.state, card.error) == ("paused", "The store is full.")
    assert card.next_step == "Free some space there, then resume the job."
    submit.resume(job_id)
    run_until(job_id, lambda event: getattr(event, "step", 0) > 10)  # the local checkpoint was not lost
    assert servers.card(job_id).state == "paused"


def test_removed_snapshots_are_not_entered(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload, scandir = upload_of(store, tmp_path / "work"), os.scandir
    (tmp_path / "work" / ".upload.0.new").mkdir()

    def vanished(path: Any = ".") -> Any:
        if ".upload.0.new" in str(path):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return scandir(path)

    saved = write(tmp_path / "work", 1)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(os, "scandir", vanished)
        upload.add(saved)
    upload.wait()
    upload.stop()
    assert restored(store, tmp_path / "other") == {"weights": "weights 1", "moments": "moments 1"}
