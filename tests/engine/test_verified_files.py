"""Files are hashed once, and again when anything about them has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import files
from engine.errors import DamagedFileError
from engine.files import ArtifactRef, write_manifest

BYTES = b"x" * 1000


@pytest.fixture
def kept(tmp_path: Path) -> ArtifactRef:
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "weights").write_bytes(BYTES)
    return ArtifactRef(folder, write_manifest(folder), tmp_path / "verified" / "artifact")


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose bytes are read."""
    names: list[str] = []
    real = files.sha256_of

    def counting(path: Path) -> str:
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(files, "sha256_of", counting)
    return names


def test_what_was_verified_is_not_hashed_again(kept: ArtifactRef, hashed: list[str]) -> None:
    assert kept.check() == kept.check() == kept.sha256
    assert hashed.count("weights") == 1
    assert kept.record is not None
    assert kept.record.stat().st_mode & 0o777 == 0o600


def overwrite(file: Path) -> None:
    """Other bytes of the same length, with the time of the old ones."""
    before = file.stat()
    file.write_bytes(b"y" * len(BYTES))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def put_another_there(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"y" * len(BYTES))
    other.replace(file)


@pytest.mark.parametrize("damage", [overwrite, put_another_there, lambda file: file.write_bytes(b""), Path.unlink])
def test_a_file_that_changed_is_verified_again(kept: ArtifactRef, damage: Callable[[Path], object]) -> None:
    kept.check()
    damage(kept.folder / "weights")
    with pytest.raises(DamagedFileError, match="weights"):
        kept.check()


def test_a_record_of_another_manifest_or_of_nonsense_does_not_count(kept: ArtifactRef, hashed: list[str]) -> None:
    kept.check()
    with pytest.raises(DamagedFileError):
        ArtifactRef(kept.folder, "0" * 64, kept.record).check()
    assert kept.record is not None
    kept.record.write_text("{")
    kept.check()
    assert hashed.count("weights") == 2


def test_without_a_record_every_check_hashes(kept: ArtifactRef, hashed: list[str]) -> None:
    for _ in range(2):
        ArtifactRef(kept.folder, kept.sha256).check()
    assert hashed.count("weights") == 2
