"""Copies of the registry: whole, private, few, and never of a registry that knows less than is there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.workbench.conftest import World
from workbench.registry import backups
from workbench.registry.backups import back_up, back_up_daily, list_backups
from workbench.registry.database import transaction
from workbench.schema.tables import Corpus
from workbench.settings import Settings, get_settings
from workbench.store.storage import get_storage


@pytest.fixture
def settings(home: Path) -> Settings:
    with transaction() as session:
        World(session, get_storage()).corpus("law")
    return get_settings()


def aged(backup: backups.Backup, stamp: str) -> None:
    backup.path.rename(backup.path.with_name(f"registry-{backup.registry_id}-{stamp}.db"))


def stamp_of(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")


def test_a_backup_holds_what_was_committed_and_nobody_else_may_read_it(settings: Settings) -> None:
    made = back_up(settings)
    assert made.path.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(made.path)) as copy:
        assert copy.execute("SELECT name FROM corpora").fetchall() == [("law",)]
    assert os.listdir(made.path.parent) == [made.path.name]


def test_a_backup_is_made_daily_and_seven_are_kept(settings: Settings) -> None:
    for day in range(1, 9):
        made = back_up_daily(settings)
        assert made is not None
        aged(made, f"202001{day:02}T000000Z")
    newest = back_up_daily(settings)
    assert newest is not None
    assert back_up_daily(settings) is None
    kept = list_backups(settings)
    assert (len(kept), kept[0]) == (backups.NUM_KEPT, newest)
    assert kept[-1].path.name.endswith("20200103T000000Z.db")


def test_a_first_backup_that_holds_almost_nothing_does_not_last_for_a_day(settings: Settings) -> None:
    assert back_up_daily(settings) is not None
    assert back_up_daily(settings) is None
    for num_more in (1, 2):  # twice as many artifacts, and again
        aged(list_backups(settings)[0], stamp_of(time.time() - 3600 / num_more))  # each has a second of its own
        assert back_up_daily(settings) is None
        with transaction() as session:
            for _ in range(num_more):
                World(session, get_storage()).artifact()
        assert back_up_daily(settings) is not None
        assert back_up_daily(settings) is None


def test_manual_backups_push_out_no_daily_one(settings: Settings) -> None:
    for day in range(1, 8):
        aged(back_up(settings), f"202001{day:02}T100000Z")
    for hour in range(10):
        aged(back_up(settings), f"20200108T{hour:02}0000Z")
    back_up(settings)
    days = [backup.path.name.split("-")[2][:8] for backup in list_backups(settings)]
    assert days[1:] == [f"202001{day:02}" for day in (8, 7, 6, 5, 4, 3)]


def test_several_copies_of_the_newest_day_stay(settings: Settings) -> None:
    made = back_up(settings)
    for hour in range(10):
        shutil.copy(made.path, made.path.with_name(f"registry-{made.registry_id}-21000101T{hour:02}0000Z.db"))
    back_up(settings)
    kept = [backup.path.name[-10:-8] for backup in list_backups(settings)]
    assert kept[: backups.NUM_KEPT] == ["09", "08", "07", "06", "05", "04", "03"]


def test_what_a_backup_that_was_killed_left_is_removed(settings: Settings) -> None:
    folder = back_up(settings).path.parent
    old, young = folder / ".registry-a.db.1.new", folder / ".registry-b.db.2.new"
    old.touch()
    young.touch()
    os.utime(old, (0, 0))
    back_up(settings)
    assert [one.exists() for one in (old, young)] == [False, True]


def test_an_empty_registry_is_not_backed_up(home: Path) -> None:
    with transaction() as session:
        session.add(Corpus(name="law", source="here"))
    assert back_up_daily(get_settings()) is None


def test_a_database_server_is_left_to_its_own_backups(home: Path) -> None:
    assert back_up_daily(Settings(home=home, database_url="postgresql://nowhere.example/registry")) is None
