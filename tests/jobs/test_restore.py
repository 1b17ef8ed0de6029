"""A backup may come from anybody: what no backup writes is not read, and nobody gets in or works by it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from jobs.backup import back_up
from jobs.restore import restore
from ui.cli.app import main
from workbench.access.users import add_user
from workbench.registry.database import reading, transaction
from workbench.settings import Settings, get_settings
from workbench.tables import Job, User, new_id


@pytest.fixture
def backup(home: Path, tmp_path: Path) -> Path:
    """A backup with a user, and a job in each state."""
    assert home
    with transaction() as session:
        add_user(session, "ada", "admin")
        for state in ("queued", "running", "paused", "done"):
            session.add(Job(kind="selfcheck", title=state, spec={}, state=state))
    back_up(get_settings(), tmp_path / "copy")
    return tmp_path / "copy"


def states(settings: Settings) -> dict[str, str]:
    with reading(settings) as session:
        return {job.title: job.state for job in session.scalars(select(Job))}


def names(settings: Settings) -> list[str]:
    with reading(settings) as session:
        return list(session.scalars(select(User.name)))


def test_users_and_unfinished_jobs_are_restored_only_on_request(backup: Path, tmp_path: Path) -> None:
    without, with_all = Settings(home=tmp_path / "without"), Settings(home=tmp_path / "all")

    result = restore(without, backup)
    assert (result.num_users_left_out, sorted(result.paused), result.requeued) == (1, ["queued", "running"], [])
    assert (names(without), states(without)) == (
        [],
        {"queued": "paused", "running": "paused", "paused": "paused", "done": "done"},
    )
    result = restore(with_all, backup, with_users=True, with_jobs=True)
    assert (result.num_users_left_out, result.paused, result.requeued) == (0, [], ["running"])
    assert (names(with_all), states(with_all)["queued"], states(with_all)["running"]) == (["ada"], "queued", "queued")


def test_nothing_but_what_a_backup_writes_is_taken(backup: Path, tmp_path: Path) -> None:
    hostile = {
        "login/token": "theirs",
        "login/secret": "theirs",
        "queue/celery.msg": "{}",
        "workbench.env": "WORKBENCH_TOKEN=theirs",
        "mlflow.db": "",
        "registry.db-wal": "",
        "artifacts/trash/x/file": "",
        "artifacts/backups/registry.db": "",
        f"artifacts/{new_id()}/weights": "",
        "artifacts/records/../escape": "",
        f"jobs/{new_id()}/log.txt": "",
        "uploads/x/text": "",
    }
    for name, content in hostile.items():
        path = backup / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (backup / "artifacts" / new_id()).symlink_to("/etc")
    listed = json.loads((backup / "manifest.json").read_text())
    listed["files"] |= {"login/token": {"size_bytes": 6, "sha256": "0" * 64}}  # as if a backup had written it
    (backup / "manifest.json").write_text(json.dumps(listed))

    there = Settings(home=tmp_path / "there", no_auth=False)
    result = restore(there, backup)

    here = {path.name for path in there.root.iterdir()}
    assert here == {"artifacts", "jobs", "migrate.lock", "registry.db", "uploads"}
    assert {path.name for path in there.artifacts_folder.iterdir()} <= {"records", "registry.json"}
    assert not [*(there.root / "uploads").iterdir(), *(there.root / "jobs").iterdir()]
    assert {"login", "queue", "workbench.env", "mlflow.db", "artifacts/trash", "uploads/x"} <= set(result.left_out)


def test_the_command_names_what_it_leaves_out(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (backup / "login").mkdir()
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "there"))
    get_settings.cache_clear()
    assert main(["restore", str(backup)]) == 0
    printed = capsys.readouterr().out
    for sentence in ("Paused: queued", "2 jobs paused", "1 user left out", "no backup writes it: login."):
        assert sentence in printed


def test_a_trigger_in_the_registry_of_a_backup_does_nothing(backup: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(backup / "registry.db")) as file:
        file.execute(
            "CREATE TRIGGER back AFTER DELETE ON users BEGIN INSERT INTO users (id, name, role, token_sha256, "
            "created_at) VALUES ('x', 'mallory', 'admin', 'x', 0); END"
        )
        file.execute("CREATE VIEW extra AS SELECT * FROM users")
        file.commit()
    there = Settings(home=tmp_path / "there")
    with pytest.raises(Exception, match=r"registry\.db is not the file"):
        restore(there, backup)
    (backup / "manifest.json").write_text('{"files": {}}')  # whoever changed the one could change the other
    restore(there, backup)
    assert names(there) == []
    with closing(sqlite3.connect(there.root / "registry.db")) as file:
        kinds = file.execute("SELECT name FROM sqlite_master WHERE name IN ('back', 'extra')").fetchall()
    assert kinds == []
