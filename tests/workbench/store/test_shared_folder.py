"""A shared folder as a store: complete or absent files, checkpoints of several attempts, and copies fetched again."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import DamagedFileError
from workbench.errors import DiskFullError, StorageError, StoreFailedError
from workbench.integrity import check
from workbench.schema.tables import Artifact
from workbench.store.object_store import ObjectStore
from workbench.store.storage import Storage
from workbench.store.stored_checkpoints import SYNCED, StoredCheckpoints

JOB = "a" * 32
INDEXES = f"checkpoints/{JOB}"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "mount").mkdir()
    return ObjectStore(f"file://{tmp_path}/mount")


def fail_with(code: int) -> Callable[..., None]:
    def fail(place: str, *_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


# files ----------------------------------------------------------------------------------------------------


def test_a_write_that_fails_midway_leaves_the_file_before_and_nothing_else(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("folder/a", b"before")

    def write_half(place: str, content: bytes) -> None:
        Path(place).write_bytes(content[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store._fs, "pipe_file", write_half)
    with pytest.raises(StoreFailedError, match="is full"):
        store.write("folder/a", b"after")
    assert store.read("folder/a") == b"before"
    assert store.names("folder") == {"a"}


@pytest.mark.parametrize(
    ("code", "problem", "next_step"),
    [
        (errno.EACCES, r"may not read and write the store .* \(EACCES\)", "Change the permissions"),
        (errno.EIO, r"cannot be read or written \(EIO\)", "Check its disk, and that it is mounted"),
    ],
)
def test_errors_of_a_folder_say_nothing_of_credentials(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, code: int, problem: str, next_step: str
) -> None:
    monkeypatch.setattr(store._fs, "pipe_file", fail_with(code))
    with pytest.raises(StoreFailedError, match=problem) as caught:
        store.write("a", b"")
    assert caught.value.next_step.startswith(next_step)
    assert "AWS" not in str(caught.value)


# checkpoints ----------------------------------------------------------------------------------------------


def attempt(store: ObjectStore, fence: int) -> StoredCheckpoints:
    return StoredCheckpoints(store, JOB, fence)


def save(store: ObjectStore, fence: int, folder: Path, step: str) -> None:
    """Saves a folder with one checkpoint."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / step).mkdir(parents=True)
    (folder / step / "weights").write_text(step)
    attempt(store, fence).save(folder)


def steps_in(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.rglob("weights") if path.read_text() == path.parent.name)


def test_a_damaged_newest_index_leaves_the_one_before(store: ObjectStore, tmp_path: Path) -> None:
    save(store, 1, tmp_path / "a", "step-1")
    store.write(f"{INDEXES}/index-00000002.json", b'{"fence": 2, "fil')
    assert attempt(store, 3).restore(tmp_path / "b") == []
    assert steps_in(tmp_path / "b") == ["step-1"]
    save(store, 3, tmp_path / "b", "step-3")
    attempt(store, 4).restore(tmp_path / "c")
    assert steps_in(tmp_path / "c") == ["step-3"]


def test_a_folder_that_saved_the_damaged_index_is_kept(store: ObjectStore, tmp_path: Path) -> None:
    save(store, 1, tmp_path / "a", "step-1")
    save(store, 2, tmp_path / "b", "step-2")  # from now on the store lacks step-1
    store.write(f"{INDEXES}/index-00000002.json", b"")
    assert attempt(store, 3).restore(tmp_path / "b") == []
    assert steps_in(tmp_path / "b") == ["step-2"]
    assert attempt(store, 3).restore(tmp_path / "c") == ["step-1/weights"]


def test_a_damaged_note_of_the_folder_is_no_end_either(store: ObjectStore, tmp_path: Path) -> None:
    save(store, 1, tmp_path / "a", "step-1")
    (tmp_path / "a" / SYNCED).write_text("{")
    attempt(store, 2).restore(tmp_path / "a")
    assert steps_in(tmp_path / "a") == ["step-1"]


def test_an_attempt_that_loses_its_lease_while_it_uploads_removes_nothing(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, 1, tmp_path / "a", "step-1")
    put = ObjectStore.put

    def lose_lease_first(self: ObjectStore, path: Path, name: str) -> None:
        monkeypatch.setattr(ObjectStore, "put", put)
        other = attempt(store, 2)
        other.restore(tmp_path / "b")
        other.save(tmp_path / "b")
        put(self, path, name)

    monkeypatch.setattr(ObjectStore, "put", lose_lease_first)
    save(store, 1, tmp_path / "a", "step-2")
    assert attempt(store, 3).restore(tmp_path / "c") == []
    assert steps_in(tmp_path / "c") == ["step-1"]


@pytest.mark.parametrize("is_equal", [False, True], ids=["another folder", "the folder that was saved"])
def test_an_older_registry_that_counts_from_a_lower_fence_goes_on(
    store: ObjectStore, tmp_path: Path, is_equal: bool
) -> None:
    save(store, 5, tmp_path / "a", "step-5")
    store.write(f"{INDEXES}/index-00000004.json", store.read(f"{INDEXES}/index-00000005.json") or b"")
    folder = tmp_path / ("a" if is_equal else "b")
    attempt(store, 2).restore(folder)
    assert steps_in(folder) == ["step-5"]
    assert {name for name in store.names(INDEXES) if name != "files"} == {"index-00000002.json"}
    save(store, 2, folder, "step-6")
    assert len(store.names(f"{INDEXES}/files")) == 1
    attempt(store, 3).restore(tmp_path / "c")
    assert steps_in(tmp_path / "c") == ["step-6"]


# cached artifacts -----------------------------------------------------------------------------------------


@pytest.fixture
def artifact(store: ObjectStore, tmp_path: Path) -> Artifact:
    """An artifact in the store, whose cached copy is damaged."""
    storage, id = Storage(tmp_path / "cache", store), uuid.uuid4().hex
    with storage.new(id) as folder:
        (folder / "weights").write_text("weights")
    sha256, size = storage.describe(id)
    (storage.place(id) / "weights").write_text("Weights")
    return Artifact(id=id, kind="thing", sha256=sha256, size_bytes=size)


@pytest.fixture
def storage(store: ObjectStore, tmp_path: Path) -> Storage:
    return Storage(tmp_path / "cache", store)


def test_damage_in_cache_and_store_is_damage_that_says_where(
    storage: Storage, store: ObjectStore, artifact: Artifact
) -> None:
    store.write(f"artifacts/{artifact.id}/weights", b"wEights")
    with pytest.raises(DamagedFileError, match=f"artifacts/{artifact.id}/weights in the store .* its bytes changed"):
        storage.kept(artifact).check()
    assert "in the store" in check._faults(storage, artifact)[0]


def test_a_cached_copy_is_fetched_again_before_it_is_judged(storage: Storage, artifact: Artifact) -> None:
    assert check._faults(storage, artifact) == []
    assert (storage.place(artifact.id) / "weights").read_text() == "weights"


@pytest.mark.parametrize("is_cached", [True, False], ids=["damaged", "absent"])
def test_a_full_disk_is_no_damage(
    storage: Storage, store: ObjectStore, artifact: Artifact, monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    if not is_cached:
        shutil.rmtree(storage.place(artifact.id))
    monkeypatch.setattr(store._fs, "get_file", fail_with(errno.ENOSPC))
    with pytest.raises(DiskFullError):
        check._faults(storage, artifact)
    with pytest.raises(DiskFullError):
        storage.kept(artifact).check()


def test_a_store_that_is_away_is_no_damage(
    storage: Storage, store: ObjectStore, artifact: Artifact, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "mount")
    with pytest.raises(StoreFailedError):
        storage.kept(artifact).check()
    with pytest.raises(StorageError, match="There is no folder"):
        check._faults(storage, artifact)
