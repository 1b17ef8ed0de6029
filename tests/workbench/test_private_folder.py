"""Weights, texts and messages are their owner's alone, also in folders that were there before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jobs.queue import worker
from jobs.queue.app import Channel, make_app
from workbench.errors import BadSettingsError, StorageError
from workbench.registry import database
from workbench.settings import Settings, read_settings
from workbench.store.private_folder import private_folder


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home and a folder of artifacts elsewhere, which all users can read."""
    for name in ("home", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    return Settings(home=tmp_path / "home", artifacts=tmp_path / "elsewhere")


def test_existing_folders_become_private_with_the_next_migration(settings: Settings) -> None:
    database.migrate(settings)
    assert [mode(settings.root), mode(settings.artifacts_folder)] == [0o700, 0o700]


def test_a_folder_of_artifacts_elsewhere_is_created_private(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", artifacts=tmp_path / "disk" / "artifacts")
    database.migrate(settings)
    assert mode(settings.artifacts_folder) == 0o700


def test_a_worker_makes_them_private_too(settings: Settings) -> None:
    database.migrate(settings)
    for folder in (settings.root, settings.artifacts_folder):
        folder.chmod(0o777)
    worker.prepare(settings)
    assert [mode(settings.root), mode(settings.artifacts_folder)] == [0o700, 0o700]


def test_the_queue_of_messages_is_private(settings: Settings) -> None:
    queue = settings.root / "queue"
    queue.mkdir(mode=0o777)
    queue.chmod(0o777)
    with make_app(settings).connection() as connection:
        channel = connection.channel()
        assert isinstance(channel, Channel)
        assert channel.folder == queue
        assert mode(channel.folder) == 0o700


def test_bits_of_the_owner_stay(tmp_path: Path) -> None:
    tmp_path.chmod(0o2750)
    private_folder(tmp_path)
    assert mode(tmp_path) == 0o2700


def test_a_folder_of_another_user_is_refused_in_a_sentence(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(StorageError, match=f"belongs to another user \\(number {user}\\)"):
        database.migrate(settings)
    assert mode(settings.root) == 0o755
    assert list(settings.root.iterdir()) == []


@pytest.mark.parametrize("variable", ["home", "artifacts"])
def test_a_folder_that_all_users_share_is_refused(tmp_path: Path, variable: str) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    settings = Settings(**{"home": tmp_path / "home", variable: shared})
    with pytest.raises(StorageError, match="shared by all users") as refused:
        database.migrate(settings)
    assert f"WORKBENCH_{variable.upper()}" in str(refused.value.next_step)
    assert mode(shared) == 0o1777


def test_the_root_of_all_folders_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Path("/").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    with pytest.raises(StorageError, match="shared by all users"):
        private_folder(Path("/"))


@pytest.mark.parametrize("variable", ["WORKBENCH_HOME", "WORKBENCH_ARTIFACTS"])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/".join(["", *["a" * 200] * 20]), "at most 3,000 bytes; got 4,020"),
        ("/tmp/" + "é" * 150, "at most 255 bytes in its path; one has 300"),
        ("~nobody-of-this-name/home", "must be the path of a folder"),
    ],
)
def test_a_path_that_is_too_long_is_refused_before_anything_is_opened(
    variable: str, path: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, path)
    with pytest.raises(BadSettingsError, match=f"{variable} .*{words}"):
        read_settings()


def test_what_is_no_folder_is_called_by_its_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for name, what in (("pipe", "named pipe"), ("file", "file"), ("/dev/null", "device")):
        with pytest.raises(StorageError, match=f"is a {what}, not a folder"):
            private_folder(tmp_path / name)
