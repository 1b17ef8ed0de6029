"""Folders are whole or absent."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.errors import DamagedFileError
from engine.files import (
    aside_of,
    aside_pattern,
    folder_size,
    former_of,
    former_pattern,
    new_file,
    new_folder,
    read_temporary,
    verify_folder,
)


def make(path: Path, text: str = "hello") -> str:
    with new_folder(path) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "b.bin").write_bytes(b"\x00" * 10)
    return verify_folder(path)


def test_a_folder_appears_complete_with_its_manifest(tmp_path: Path) -> None:
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


def test_who_may_read_the_manifest_may_read_the_weights(tmp_path: Path) -> None:
    with new_folder(tmp_path / "x") as folder:
        save_file({"a": torch.zeros(1)}, folder / "model.safetensors")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "x").iterdir()}
    assert modes["model.safetensors"] == modes["manifest.json"]


def test_a_private_file_stays_private(tmp_path: Path) -> None:
    with new_folder(tmp_path / "x") as folder:
        (folder / "secret.txt").touch(0o600)
    assert stat.S_IMODE((tmp_path / "x" / "secret.txt").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["a.txt", "deep/b.bin", "manifest.json"])
def test_every_kind_of_damage_is_detected_and_named(tmp_path: Path, name: str) -> None:
    sha256 = make(tmp_path / "x")
    file = tmp_path / "x" / name
    full = file.read_bytes()
    for damaged in (full[:-1], full[:-1] + bytes([full[-1] ^ 1]), full + b"!"):
        file.write_bytes(damaged)
        with pytest.raises(DamagedFileError):
            verify_folder(tmp_path / "x", sha256)
    file.unlink()
    with pytest.raises(DamagedFileError):
        verify_folder(tmp_path / "x", sha256)


def test_what_a_folder_is_called_is_no_part_of_its_hash(tmp_path: Path) -> None:  # L16
    assert make(tmp_path / "one") == make(tmp_path / "two")


# files -------------------------------------------------------------------------------------------


def write(path: Path, text: str, **options: Any) -> None:
    with new_file(path, **options) as file:
        file.write_text(text)


def without_links(*_: Any) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))  # as Linux answers on vfat and exFAT


def test_a_file_appears_complete_and_replaces_the_old_one_only_then(tmp_path: Path) -> None:
    write(tmp_path / "x", "old")
    with new_file(tmp_path / "x") as file:
        file.write_text("half")
        assert (tmp_path / "x").read_text() == "old"
        file.write_text("new")
    assert (tmp_path / "x").read_text() == "new"
    with pytest.raises(OSError, match="full"), new_file(tmp_path / "x") as file:
        file.write_text("half")
        raise OSError("disk full")
    assert (tmp_path / "x").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_must_be_new_never_replaces_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", without_links)
    write(tmp_path / "x", "first", replace=False)
    with pytest.raises(FileExistsError):
        write(tmp_path / "x", "second", replace=False)
    assert (tmp_path / "x").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_the_next_file_of_a_mark_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / ".x.mine.new").write_text("half")
    write(tmp_path / "x", "all", mark="mine")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x": "all"}


@pytest.mark.parametrize("has_links", [True, False])
def test_only_its_owner_reads_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", without_links)
    for replace in (False, True):
        write(tmp_path / f"x{replace}", "secret", replace=replace, private=True)
        assert stat.S_IMODE((tmp_path / f"x{replace}").stat().st_mode) == 0o600


def test_a_temporary_path_fits_its_pattern_and_holds_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.b"
    aside, former = aside_of(path, "7"), former_of(path, "7")
    for one in (path, aside, former):
        one.touch()

    assert [*tmp_path.glob(aside_pattern())] == [*tmp_path.glob(aside_pattern("a.b"))] == [aside]
    assert [*tmp_path.glob(former_pattern())] == [*tmp_path.glob(former_pattern("a.b"))] == [former]
    assert [read_temporary(one) for one in (path, aside, former)] == [None, ("a.b", False), ("a.b", True)]
