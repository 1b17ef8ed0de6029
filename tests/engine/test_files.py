"""Folders are whole or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import DamagedFile
from engine.files import folder_size, new_folder, verify_folder


def make(path: Path, text: str = "hello") -> str:
    with new_folder(path) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "b.bin").write_bytes(b"\x00" * 10)
    return verify_folder(path)


def test_a_folder_appears_whole_with_its_manifest(tmp_path: Path) -> None:
    sha256 = make(tmp_path / "new")
    assert verify_folder(tmp_path / "new", sha256) == sha256
    assert folder_size(tmp_path / "new") > 15


def test_a_block_that_fails_leaves_nothing_and_the_old_folder_as_it_was(tmp_path: Path) -> None:
    sha256 = make(tmp_path / "kept")
    with pytest.raises(OSError, match="full"), new_folder(tmp_path / "kept") as folder:
        (folder / "half").write_text("x")
        raise OSError("disk full")
    assert verify_folder(tmp_path / "kept") == sha256
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_second_writing_replaces_the_first(tmp_path: Path) -> None:
    make(tmp_path / "x", "one")
    make(tmp_path / "x", "two")
    assert (tmp_path / "x" / "a.txt").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("name", ["a.txt", "deep/b.bin", "manifest.json"])
def test_every_kind_of_damage_is_found_and_named(tmp_path: Path, name: str) -> None:
    sha256 = make(tmp_path / "x")
    file = tmp_path / "x" / name
    full = file.read_bytes()
    for damaged in (full[:-1], full[:-1] + bytes([full[-1] ^ 1]), full + b"!"):
        file.write_bytes(damaged)
        with pytest.raises(DamagedFile):
            verify_folder(tmp_path / "x", sha256)
    file.unlink()
    with pytest.raises(DamagedFile):
        verify_folder(tmp_path / "x", sha256)


def test_what_a_folder_is_called_is_no_part_of_its_hash(tmp_path: Path) -> None:  # L16
    assert make(tmp_path / "one") == make(tmp_path / "two")
