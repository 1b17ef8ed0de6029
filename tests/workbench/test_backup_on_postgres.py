"""A workbench on PostgreSQL is backed up while it works, and restored to either database: the same rows on both."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, Text, cast, select, text

from jobs.backup import back_up
from jobs.restore import restore
from tests.workbench.conftest import World
from workbench.errors import StorageError
from workbench.integrity.check import check_store
from workbench.job_records import jobs, leases
from workbench.kinds.kind import parse_spec
from workbench.registry import database
from workbench.registry.backups import copy_rows, has_rows
from workbench.schema.base import Base
from workbench.schema.job_tables import JobEvent
from workbench.schema.tables import Expert, Mixture
from workbench.settings import Settings, get_settings
from workbench.store.storage import get_storage


def rows_of(settings: Settings) -> dict[str, list[str]]:
    """Every row of every table with its values as they are stored, JSON as its text."""
    with database.reading(settings) as session:
        return {
            table.name: sorted(
                repr(tuple(row))
                for row in session.execute(
                    select(
                        *(cast(column, Text) if isinstance(column.type, JSON) else column for column in table.columns)
                    )
                )
            )
            for table in Base.metadata.sorted_tables
        }


@pytest.fixture
def server(home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An empty registry in PostgreSQL, with artifacts in the home; the settings of this process."""
    (home / "registry.db").unlink()
    monkeypatch.setenv("WORKBENCH_DATABASE_URL", postgres_url)
    get_settings.cache_clear()
    empty(get_settings())
    return get_settings()


def empty(settings: Settings) -> None:
    with database.transaction(settings) as session:
        session.execute(text(f"TRUNCATE {', '.join(Base.metadata.tables)}"))


def fill(settings: Settings) -> str:
    """Rows that are hard to copy: a child before its parent, JSON of many kinds, a running job; the job's id."""
    with database.transaction(settings) as session:
        world = World(session, get_storage(settings))
        first, second = world.experts("law", "code")
        world.expert("child", "code", parent_id=second.id, config={"rate": 1e-3, "big": 2**60, "ö": ["“", None, {}]})
        session.flush()
        session.get_one(Expert, first.id).parent_id = session.scalars(
            select(Expert.id).where(Expert.name == "child")
        ).one()
        session.add(Mixture(name="duo", gate={"kind": "fixed", "weights": {"b": 0.1, "a": 1 / 3}}))
        job_id = jobs.create_job(session, parse_spec({"kind": "evaluate", "mixture": "duo"}))
        leases.add_event(session, job_id, "A line\nand another.", kind="x", data={"n": 1})
    with database.transaction(settings) as session:
        leases.claim(session, job_id, "someone", 30.0, 3)
    return job_id


def test_rows_go_to_sqlite_and_back_unchanged(server: Settings, tmp_path: Path) -> None:
    fill(server)
    before = rows_of(server)
    assert (len(before["experts"]), len(before["job_events"]) > 1) == (3, True)
    file = Settings(home=tmp_path / "file", database_url="")
    database.migrate(file)
    with database.reading(server) as session, database.filling(file) as target:
        number = copy_rows(session.connection(), target)
    assert (number, rows_of(file)) == (sum(map(len, before.values())), before)
    empty(server)
    with database.reading(file) as session, database.filling(server) as target:
        copy_rows(session.connection(), target)
    assert rows_of(server) == before
    with database.transaction(server) as session:  # the database counts on behind the copied ids
        newest = max(session.scalars(select(JobEvent.id)))
        leases.add_event(session, session.scalars(select(JobEvent.job_id)).first() or "", "Another.")
        session.flush()
        assert max(session.scalars(select(JobEvent.id))) > newest


def test_a_backup_of_postgresql_is_restored_to_a_home_and_to_postgresql(server: Settings, tmp_path: Path) -> None:
    job_id, copy = fill(server), tmp_path / "copy"
    before = rows_of(server)
    assert back_up(server, copy).faulty == []
    home = Settings(home=tmp_path / "elsewhere", database_url="")
    restored = restore(home, copy, with_users=True, with_jobs=True)
    assert (restored.check.ok, len(restored.requeued)) == (True, 1)
    assert without_jobs(rows_of(home)) == without_jobs(before)

    there = server.model_copy(update={"home": tmp_path / "there"})
    with pytest.raises(StorageError, match="holds a registry already"):
        restore(there, copy)
    assert (rows_of(server), there.root.exists()) == (before, False)
    empty(server)
    assert restore(there, copy, with_users=True, with_jobs=True).check.ok
    assert without_jobs(rows_of(there)) == without_jobs(before)
    assert check_store(there).ok
    assert not (there.root / "registry.db").exists()
    with database.reading(there) as session:
        assert jobs.get_job(session, job_id).state == "queued"


def without_jobs(rows: dict[str, list[str]]) -> dict[str, list[str]]:
    """The rows without those that the return of a running job to the queue changes."""
    return {name: some for name, some in rows.items() if name not in ("jobs", "job_events")}


def test_a_home_of_sqlite_moves_to_postgresql(home: Path, tmp_path: Path, server: Settings) -> None:
    file = Settings(home=tmp_path / "file", database_url="")
    database.migrate(file)
    fill(file)
    back_up(file, tmp_path / "copy")
    there = server.model_copy(update={"home": tmp_path / "there"})
    assert restore(there, tmp_path / "copy", with_users=True).check.ok
    assert without_jobs(rows_of(there)) == without_jobs(rows_of(file))


def test_rows_written_during_the_copy_are_in_it_together_or_not_at_all(server: Settings, tmp_path: Path) -> None:
    job_id = fill(server)
    stop, written = threading.Event(), 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            with database.transaction(server) as session:
                leases.add_event(session, job_id, "pair", kind=f"pair {written}")
                session.add(Mixture(name=f"pair {written}", gate={}))
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while written < 20:
            time.sleep(0.01)
        back_up(server, tmp_path / "copy")
        at_end = written
    finally:
        stop.set()
        writer.join()
    home = Settings(home=tmp_path / "elsewhere", database_url="")
    assert restore(home, tmp_path / "copy").check.ok
    with database.reading(home) as session:
        events = set(session.scalars(select(JobEvent.kind).where(JobEvent.message == "pair")))
        mixtures = set(session.scalars(select(Mixture.name).where(Mixture.name.startswith("pair"))))
    assert events == mixtures
    assert 20 <= len(events) < at_end


def test_a_copy_that_fails_leaves_the_database_empty_and_no_home(
    server: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server)
    back_up(server, tmp_path / "copy")
    empty(server)
    there = server.model_copy(update={"home": tmp_path / "there"})

    def cut_off(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr("jobs.restore._put", cut_off)
        restore(there, tmp_path / "copy")
    with database.reading(server) as session:
        assert not has_rows(session.connection())
    assert not there.root.exists()
    assert restore(there, tmp_path / "copy").check.ok


LONG = "x" * 500
UNFIT = {  # what SQLite keeps, and words of the refusal
    "a long name": ("UPDATE mixtures SET name = :value", LONG, "mixtures", "column name"),
    "a character": ("UPDATE mixtures SET name = :value", "a\0b", "mixtures", "column name"),
    "a number that JSON does not have": ("UPDATE mixtures SET gate = :value", '{"a": NaN}', "mixtures", "json"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_left(what: str, server: Settings, tmp_path: Path) -> None:
    file = Settings(home=tmp_path / "file", database_url="")
    database.migrate(file)
    fill(file)
    statement, value, table, words = UNFIT[what]
    with closing(sqlite3.connect(file.root / "registry.db")) as connection, connection:
        connection.execute(statement, {"value": value})
    back_up(file, tmp_path / "copy")
    there = server.model_copy(update={"home": tmp_path / "there"})
    with pytest.raises(StorageError, match=f"table {table} does not fit") as refused:
        restore(there, tmp_path / "copy")
    assert words in str(refused.value)
    with database.reading(server) as session:
        assert not has_rows(session.connection())
    assert not there.root.exists()


def test_no_password_is_in_a_backup(server: Settings, tmp_path: Path) -> None:
    secret = server.model_copy(update={"database_url": server.database.replace("postgres@", "postgres:hunter2secret@")})
    back_up(secret, tmp_path / "copy")
    database.close_engines()
    assert not any(b"hunter2secret" in path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file())
