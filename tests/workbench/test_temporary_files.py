"""Temporary files of libraries lie in the home folder, for its owner alone, and for a week."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from workbench.settings import Settings
from workbench.store.private_folder import _FOLDERS, KEPT_SECONDS, keep_temporary_files, sweep_temporary_files


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in _FOLDERS:
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return Settings(home=tmp_path / "home")


def test_each_library_is_sent_to_a_private_folder_of_the_home(settings: Settings) -> None:
    keep_temporary_files(settings)
    folders = {Path(os.environ[name]) for name in _FOLDERS} | {Path(tempfile.gettempdir())}
    assert len(folders) == len(_FOLDERS)
    assert all(folder.is_relative_to(settings.root) and folder.stat().st_mode & 0o777 == 0o700 for folder in folders)


def test_what_is_a_week_old_is_removed_and_what_is_new_stays(settings: Settings) -> None:
    keep_temporary_files(settings)
    folder = Path(os.environ["GRADIO_TEMP_DIR"])
    (folder / "deep").mkdir()
    old, new = folder / "deep" / "state.json", folder / "new"
    for file in (old, new):
        file.write_text("x")
    for path in (old, old.parent):
        os.utime(path, (0, new.stat().st_mtime - KEPT_SECONDS - 1))
    sweep_temporary_files(settings)
    sweep_temporary_files(settings)  # a folder is old from when its last file went
    assert (old.exists(), new.exists()) == (False, True)


def test_a_link_is_removed_and_not_what_it_leads_to(settings: Settings, tmp_path: Path) -> None:
    keep_temporary_files(settings)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").write_text("x")
    link = Path(os.environ["TMPDIR"], "link")
    link.symlink_to(theirs)
    for path in (theirs, theirs / "file", link):
        os.utime(path, (0, 0), follow_symlinks=False)
    sweep_temporary_files(settings)
    assert (link.is_symlink(), (theirs / "file").exists()) == (False, True)


def test_sockets_and_pipes_stay_since_their_age_does_not_say_whether_they_are_used(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_temporary_files(settings)
    folder = Path(os.environ["TMPDIR"], "workbench-x")
    folder.mkdir()
    monkeypatch.chdir(folder)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        os.mkfifo("pipe")
        for path in ("socket", "pipe", folder):
            os.utime(path, (0, 0))
        sweep_temporary_files(settings)
        assert {path.name for path in folder.iterdir()} == {"socket", "pipe"}
