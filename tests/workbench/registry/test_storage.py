"""Artifacts are whole or absent, stay in their folder, and outlive a sweep and a full disk."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from engine.errors import DamagedFileError
from workbench.errors import DiskFullError, StorageError
from workbench.schema.tables import Artifact
from workbench.store.storage import OWNER, UNREADABLE, Storage, confine, free_bytes, is_full_disk, noticing_full_disk

HOUR = 3600.0
HOSTILE = ["", "..", "../" + "a" * 29, "a" * 31, "a" * 33, "A" * 32, "/" + "a" * 31, "a" * 32 + "\n", "é" * 32]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "artifacts")


def keep(storage: Storage, id: str = "", text: str = "weights") -> Artifact:
    id = id or uuid.uuid4().hex
    with storage.new(id) as folder:
        (folder / "model").write_text(text)
    sha256, size_bytes = storage.describe(id)
    return Artifact(id=id, kind="thing", sha256=sha256, size_bytes=size_bytes)


def age(folder: Path, seconds: float) -> None:
    then = time.time() - seconds
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (then, then))


def test_what_was_kept_verifies(storage: Storage) -> None:
    artifact = keep(storage)
    assert storage.kept(artifact).check() == artifact.sha256
    assert (storage.path(artifact.id) / "model").read_text() == "weights"
    assert artifact.size_bytes > len("weights")


def test_what_fails_halfway_leaves_nothing(storage: Storage) -> None:
    with pytest.raises(ZeroDivisionError), storage.new("a" * 32) as folder:
        (folder / "model").write_text("half")
        raise ZeroDivisionError
    assert list(storage.folder.iterdir()) == []


@pytest.mark.parametrize("id", HOSTILE)
def test_no_strange_id_becomes_a_path(storage: Storage, id: str) -> None:
    with pytest.raises(StorageError, match="must be 32 hexadecimal digits"):
        storage.path(id)
    with pytest.raises(StorageError), storage.new(id):
        pass
    with pytest.raises(StorageError):
        confine(storage.folder, id)


def flip_a_bit(folder: Path) -> None:
    content = bytearray((folder / "model").read_bytes())
    content[3] ^= 1
    (folder / "model").write_bytes(content)


def cut(folder: Path) -> None:
    (folder / "model").write_bytes((folder / "model").read_bytes()[:-1])


def lose(folder: Path) -> None:
    (folder / "model").unlink()


def lose_all(folder: Path) -> None:
    lose(folder)
    (folder / "manifest.json").unlink()
    folder.rmdir()


def swap(folder: Path) -> None:
    other = keep(Storage(folder.parent), text="others")
    lose_all(folder)
    (folder.parent / other.id).rename(folder)


@pytest.mark.parametrize("damage", [flip_a_bit, cut, lose, lose_all, swap])
def test_damage_is_detected_before_use(storage: Storage, damage: object) -> None:
    artifact = keep(storage)
    assert callable(damage)
    damage(storage.path(artifact.id))
    with pytest.raises(DamagedFileError, match="Restore it from a copy"):
        storage.kept(artifact).check()


def test_what_is_not_there_cannot_be_described(storage: Storage) -> None:
    with pytest.raises(StorageError, match="There is no artifact"):
        storage.describe("a" * 32)


# sweeping --------------------------------------------------------------------------------------------


def test_a_sweep_takes_only_what_nobody_knows_and_nobody_touched(storage: Storage) -> None:
    known, young, orphan = keep(storage), keep(storage), keep(storage)
    age(storage.path(known.id), 2 * HOUR)
    age(storage.path(orphan.id), 2 * HOUR)
    assert storage.sweep({known.id}, HOUR) == [storage.path(orphan.id)]
    assert storage.ids() == {known.id, young.id}
    assert [entry.id for entry in storage.trash.entries()] == [orphan.id]


def test_a_sweep_takes_what_dead_writers_left(storage: Storage) -> None:
    keep(storage)
    left = [storage.folder / f".{'a' * 32}.77.{what}" for what in ("new", "old")]
    for folder in left:
        folder.mkdir()
        (folder / "model").touch()
        age(folder, 2 * HOUR)
    assert sorted(storage.sweep(set(), HOUR)) == sorted(left)


def test_a_sweep_waits_for_a_writer_whose_file_still_grows(storage: Storage) -> None:
    keep(storage)
    folder = storage.folder / f".{'a' * 32}.77.new"
    folder.mkdir()
    age(folder, 2 * HOUR)
    (folder / "model").touch()
    os.utime(folder, (0, 0))
    assert storage.sweep(set(), HOUR) == []


def test_a_sweep_puts_back_what_its_writer_had_moved_aside(storage: Storage) -> None:
    artifact = keep(storage)
    aside = storage.folder / f".{artifact.id}.77.old"
    storage.path(artifact.id).rename(aside)
    age(aside, 2 * HOUR)
    assert storage.sweep({artifact.id}, HOUR) == []
    storage.kept(artifact).check()


def test_a_sweep_leaves_unknown_files_untouched(storage: Storage, tmp_path: Path) -> None:
    keep(storage)
    (tmp_path / "precious").mkdir()
    (storage.folder / ("b" * 32)).symlink_to(tmp_path / "precious")
    (storage.folder / "notes.txt").touch()
    (storage.folder / "mine").mkdir()
    assert storage.sweep(set(), -HOUR) != []
    assert {path.name for path in storage.folder.iterdir()} == {"b" * 32, "notes.txt", "mine", "trash"}


def test_a_sweep_of_nothing_is_nothing(storage: Storage) -> None:
    assert storage.sweep(set(), 0) == []


def test_a_sweep_takes_nothing_that_a_registry_recorded_until_it_is_deleted_there(storage: Storage) -> None:
    artifact = keep(storage)
    age(storage.path(artifact.id), 2 * HOUR)
    storage.records.write(artifact.id, {"rows": {}})
    assert storage.sweep(set(), HOUR) == []
    storage.records.mark_deleted(artifact.id, time.time())
    assert storage.sweep(set(), HOUR) == [storage.path(artifact.id)]


def test_what_nobody_recorded_stays_a_while_after_the_artifacts_were_claimed(storage: Storage) -> None:
    artifact = keep(storage)
    age(storage.path(artifact.id), 2 * HOUR)
    assert storage.set_owner("a" * 32)
    assert storage.sweep(set(), HOUR) == []
    age(storage.folder / OWNER, 2 * HOUR)
    assert storage.sweep(set(), HOUR) == [storage.path(artifact.id)]


@pytest.mark.parametrize("has_links", [True, False])
def test_the_first_claim_counts(storage: Storage, has_links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", link)
    assert [storage.set_owner(id * 32) for id in "aba"] == [True, False, True]
    assert os.listdir(storage.folder) == [OWNER]


def test_a_claim_that_does_not_fit_on_the_disk_leaves_no_claim(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        storage.set_owner("a" * 32)
    assert storage.owner() is None


def test_nobody_owns_what_a_damaged_file_claims(storage: Storage) -> None:
    storage.set_owner("a" * 32)
    (storage.folder / OWNER).write_text("")
    assert storage.owner() == UNREADABLE
    assert not storage.set_owner("a" * 32)
    assert storage.set_owner("a" * 32, replace=True)


def test_threads_may_write_one_record_concurrently(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: storage.records.write("a" * 32, {"n": n}), range(400)))
    assert storage.records.is_live("a" * 32)
    assert os.listdir(storage.records.folder) == [f"{'a' * 32}.json"]


def test_the_size_of_what_another_process_deletes_is_no_failure(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(storage)
    storage.sweep(set(), -HOUR)
    [entry] = storage.trash.entries()
    result = list(os.walk(entry.path))
    shutil.rmtree(entry.path)
    monkeypatch.setattr(os, "walk", lambda *_: result)
    assert entry.size_bytes == 0
    with pytest.raises(StorageError, match="is gone"):
        storage.trash.restore(entry, storage.folder / entry.id)


def test_what_was_in_the_trash_is_the_same_afterwards(storage: Storage) -> None:
    artifact = keep(storage)
    storage.sweep(set(), -HOUR)
    [entry] = storage.trash.entries()
    storage.trash.restore(entry, storage.path(artifact.id))
    assert storage.kept(artifact).check() == artifact.sha256
    assert storage.sweep(set(), HOUR) == []  # it counts as new


def test_a_restore_replaces_nothing(storage: Storage) -> None:
    artifact = keep(storage)
    storage.sweep(set(), -HOUR)
    keep(storage, artifact.id)
    with pytest.raises(StorageError, match="exists already"):
        storage.trash.restore(storage.trash.entries()[0], storage.path(artifact.id))


def test_the_trash_is_emptied_of_what_is_old(storage: Storage) -> None:
    old, young = keep(storage), keep(storage)
    storage.sweep(set(), -HOUR)
    entry = next(one for one in storage.trash.entries() if one.id == old.id)
    entry.path.rename(entry.path.with_name(f"20200101T000000Z-artifact-{old.id}"))
    (storage.trash.folder / "notes").mkdir()
    assert [one.id for one in storage.empty_trash()] == [old.id]
    assert storage.trash.ids() == {young.id}
    storage.empty_trash(0)
    assert [path.name for path in storage.trash.folder.iterdir()] == ["notes"]


# a full disk -----------------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine lets us mount nothing")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def write_bytes(folder: Path) -> None:
    (folder / "model").write_bytes(bytes(2 << 20))


def write_array(folder: Path) -> None:
    np.save(folder / "model.npy", np.zeros(1 << 20))


def write_tensors(folder: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"weight": np.zeros(1 << 20)}, folder / "model.safetensors")


def write_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": [os.urandom(2 << 20)]}), folder / "train.parquet")


@pytest.mark.parametrize("write", [write_bytes, write_array, write_tensors, write_parquet])
def test_a_full_disk_destroys_nothing_and_says_where(tiny_disk: Path, write: object) -> None:
    storage = Storage(tiny_disk / "artifacts")
    before = keep(storage)
    assert callable(write)
    sentence = rf"{storage.folder} is full: .* bytes are free"
    with pytest.raises(DiskFullError, match=sentence) as caught, storage.new("a" * 32) as folder:
        write(folder)
    assert "then resume the job" in caught.value.next_step
    assert [path.name for path in storage.folder.iterdir()] == [before.id]
    storage.kept(before).check()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_and_no_quota_are_a_full_disk(tmp_path: Path, number: int) -> None:
    with pytest.raises(DiskFullError), noticing_full_disk(tmp_path):
        raise OSError(number, os.strerror(number))


def test_other_failures_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), noticing_full_disk(tmp_path):
        raise PermissionError(errno.EACCES, "no")
    assert not is_full_disk(OSError("odd"), tmp_path)


def test_free_space_is_known_of_folders_that_are_not_there_yet(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not" / "yet") > 0
