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
from jobs.uploads import names_file, uploads_folder
from ui.cli.app import main
from workbench.access.users import add_user
from workbench.errors import StorageError
from workbench.registry.database import reading, transaction
from workbench.schema.base import new_id
from workbench.schema.job_tables import Job
from workbench.schema.tables import User
from workbench.settings import Settings, get_settings


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
        f"artifacts/records/{new_id()}.json": "{}",
        f"uploads/{'a' * 32}/0001.txt": "theirs",
        f"uploads/{'a' * 32}.json": "{}",
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
    rowless = (there.artifacts_folder / "records", there.root / "uploads", there.root / "jobs")
    assert not [path for folder in rowless for path in folder.iterdir()]
    assert len([name for name in result.left_out if name.startswith(("uploads/a", "artifacts/records/"))]) == 3
    assert {"login", "queue", "workbench.env", "mlflow.db", "artifacts/trash", "uploads/x"} <= set(result.left_out)


def test_the_command_names_what_it_leaves_out(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (backup / "login").mkdir()
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "there"))
    get_settings.cache_clear()
    assert main(["restore", str(backup)]) == 0
    printed = capsys.readouterr().out
    for sentence in (
        "Paused: queued",
        "2 jobs paused",
        "1 user left out",
        "1 file or folder left out",
        "no row names it: login.",
    ):
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


@pytest.mark.parametrize("change", ["type = 'Trigger'", "type = 'TRIGGER'", "name = 'BACK'", "type = 'VIEW'"])
def test_a_trigger_in_another_spelling_is_dropped_or_refused(backup: Path, tmp_path: Path, change: str) -> None:
    with closing(sqlite3.connect(backup / "registry.db")) as file:
        file.execute(
            "CREATE TRIGGER back AFTER UPDATE ON alembic_version BEGIN INSERT INTO users (id, name, role, "
            "token_sha256, created_at) VALUES ('x', 'mallory', 'admin', 'x', 0); END"
        )
        file.execute("CREATE VIEW seen AS SELECT * FROM users")
        file.execute("PRAGMA writable_schema = ON")
        which = "seen" if "VIEW" in change else "back"
        file.execute(f"UPDATE sqlite_master SET {change} WHERE name = '{which}'")
        file.commit()
    (backup / "manifest.json").write_text('{"files": {}}')
    there = Settings(home=tmp_path / "there")
    with pytest.raises(StorageError, match="neither a table nor an index"):
        restore(there, backup, with_users=True)
    assert not there.root.exists()


def test_uploads_that_a_job_reads_are_restored_with_their_names(home: Path, tmp_path: Path) -> None:
    here, id = get_settings(), new_id()
    upload = uploads_folder(here.root) / id
    upload.mkdir(parents=True)
    (upload / "0001.txt").write_text("text")
    names_file(upload).write_text('{"0001.txt": "mine.txt"}')
    with transaction() as session:
        spec = {"name": "mine", "source": str(upload)}
        session.add(Job(kind="import-corpus", title="import", spec=spec, state="queued"))
    back_up(here, tmp_path / "copy")
    there = Settings(home=tmp_path / "there")
    assert restore(there, tmp_path / "copy").left_out == []
    assert {path.name for path in uploads_folder(there.root).iterdir()} == {id, f"{id}.json"}


@pytest.mark.parametrize("table", ["alembic_version", "devices"])
def test_a_trigger_in_an_old_registry_does_nothing_while_it_is_migrated(
    backup: Path, tmp_path: Path, table: str
) -> None:
    with closing(sqlite3.connect(backup / "registry.db")) as file:
        file.execute("ALTER TABLE devices DROP COLUMN number")  # as it was before version 0021
        file.execute("UPDATE alembic_version SET version_num = '0020'")
        file.execute(
            "INSERT INTO devices (host, uuid, address, name, memory_bytes, worker, seen_until, fence) "
            "VALUES ('x', 'x', '0', 'x', 1, 'x', 0, 0)"
        )
        for event in ("UPDATE", "DELETE", "INSERT"):
            file.execute(
                f'CREATE TRIGGER "{event} ""it" AFTER {event} ON {table} BEGIN INSERT INTO users (id, name, role, '
                "token_sha256, created_at) VALUES (hex(randomblob(16)), 'mallory', 'admin', hex(randomblob(9)), 0); END"
            )
        file.commit()
    (backup / "manifest.json").write_text('{"files": {}}')
    there = Settings(home=tmp_path / "there")
    restore(there, backup, with_users=True)
    assert names(there) == ["ada"]
    assert not [*there.root.glob("registry.db.*")]


@pytest.mark.parametrize("change", ["DROP TABLE jobs", "CREATE VIEW twice AS SELECT * FROM absent; DROP TABLE users"])
def test_a_registry_without_a_table_is_called_damaged(backup: Path, tmp_path: Path, change: str) -> None:
    with closing(sqlite3.connect(backup / "registry.db")) as file:
        file.executescript(f"UPDATE alembic_version SET version_num = '0018'; {change}")
    (backup / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(StorageError, match="The backup's registry is damaged"):
        restore(Settings(home=tmp_path / "there"), backup)
    assert not (tmp_path / "there").exists()
