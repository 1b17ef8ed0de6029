"""workbench registry, and what the doctor and the overview say of artifacts, trash and backups."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import delete, select

from jobs import garbage_collection
from jobs.plans.demo import is_fresh
from tests.ui.conftest import ask
from tests.workbench.conftest import World
from ui.cli.app import main
from ui.serving.doctor import Finding, examine
from ui.studio.shared import health
from workbench.job_records import jobs, leases
from workbench.kinds.training.make_seed import MakeSeed
from workbench.registry import database, seeds
from workbench.schema.tables import Artifact, SeedModel
from workbench.settings import Settings, get_settings
from workbench.store.storage import get_storage


@pytest.fixture
def seed(home: Path) -> str:
    """The name of a seed model whose files are two days old."""
    with database.transaction() as session:
        World(session, get_storage()).seed("tiny")
    then = time.time() - 48 * 3600
    for path in home.rglob("artifacts/*/*"):
        os.utime(path, (then, then))
        os.utime(path.parent, (then, then))
    return "tiny"


def lose_registry(home: Path) -> None:
    database.close_engines()
    for file in home.glob("registry.db*"):
        file.unlink()


def finding(name: str) -> Finding:
    return next(one for one in examine(get_settings()) if one.name == name)


def test_a_lost_registry_is_reported_and_rebuilt(home: Path, seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert finding("Artifacts").ok
    lose_registry(home)
    assert "workbench registry rebuild" in finding("Artifacts").next_step
    assert main(["migrate"]) == 0
    assert "belong to another registry" in finding("Artifacts").finding
    assert finding("Artifacts").needed
    health.artifacts_signs.clear()
    [sign] = health.artifacts_signs(get_settings())
    assert not sign.is_well
    capsys.readouterr()

    assert ask(capsys, "registry", "rebuild", "--dry-run")["made"] == {"artifact": 1, "seed model": 1}
    assert ask(capsys, "seed", "list") == []
    assert main(["registry", "rebuild"]) == 0
    assert "Rebuilt: 1 artifact, 1 seed model. The registry knows 1 artifact." in capsys.readouterr().out
    assert [one["name"] for one in ask(capsys, "seed", "list")] == [seed]
    assert finding("Artifacts").ok
    health.artifacts_signs.clear()
    assert health.artifacts_signs(get_settings()) == []


def test_with_a_shared_store_what_another_machine_deleted_is_no_fault_and_never_comes_back(
    home: Path, seed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("WORKBENCH_STORE", f"file://{tmp_path / 'shared'}")
    get_settings.cache_clear()
    with database.transaction() as session:
        World(session, get_storage()).artifact()  # it stays
    assert main(["registry", "upload"]) == 0
    artifacts = home / "artifacts"
    with database.transaction(Settings(home=tmp_path / "other", database_url=get_settings().database)) as session:
        seeds.delete_seed(session, seed)
    assert not any("deleted_at" in file.read_text() for file in (artifacts / "records").iterdir())
    capsys.readouterr()
    assert main(["verify"]) == 0
    assert "Needed by no row, which is not a fault" in capsys.readouterr().out
    assert ask(capsys, "verify")["lost_rows"] == []
    assert finding("Artifacts").ok
    assert ask(capsys, "registry", "rebuild")["made"] == {}
    assert ask(capsys, "seed", "list") == []
    garbage_collection.sweep(get_settings())
    [entry] = ask(capsys, "registry", "trash", "list")
    assert entry["name"] == f"seed model {seed}"
    assert main(["registry", "trash", "empty"]) == 0
    assert not (tmp_path / "shared" / "artifacts" / entry["id"]).exists()


def test_with_a_shared_store_rows_that_the_registry_lost_are_a_fault_and_come_back(
    home: Path, seed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert home
    monkeypatch.setenv("WORKBENCH_STORE", f"file://{tmp_path}")
    get_settings.cache_clear()
    with database.transaction() as session:
        artifact_id = session.scalars(select(SeedModel.artifact_id)).one()
        session.execute(delete(SeedModel))  # as in an older backup
        session.execute(delete(Artifact))
    assert main(["verify"]) == 1
    assert f"Without a row: {artifact_id}. Run `workbench registry rebuild`." in capsys.readouterr().out
    assert ask(capsys, "registry", "rebuild")["made"] == {"artifact": 1, "seed model": 1}
    assert [one["name"] for one in ask(capsys, "seed", "list")] == [seed]


def test_rows_that_an_older_registry_lacks_are_reported(home: Path, seed: str) -> None:
    older = [(home / "registry.db").read_bytes()] if database.close_engines() is None else []
    with database.transaction() as session:
        World(session, get_storage()).artifact()
    lose_registry(home)
    (home / "registry.db").write_bytes(older[0])
    assert "no rows for 1 artifact" in finding("Artifacts").finding


def test_what_was_deleted_can_be_restored_until_the_trash_is_emptied(
    home: Path, seed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.transaction() as session:
        seeds.delete_seed(session, seed)
    garbage_collection.sweep(get_settings())
    [entry] = ask(capsys, "registry", "trash", "list")
    assert (entry["kind"], entry["name"]) == ("artifact", f"seed model {seed}")
    assert finding("Trash").finding.startswith("1 folder, ")
    assert "in the trash" not in finding("Disk").finding  # sized once: the line above tells it
    monkeypatch.setattr("ui.serving.doctor.ENOUGH_BYTES", 1 << 60)
    assert "in the trash" in finding("Disk").finding

    ask(capsys, "registry", "trash", "restore", entry["id"][:8])
    assert [one["name"] for one in ask(capsys, "seed", "list")] == [seed]
    assert ask(capsys, "registry", "trash", "list") == []

    with database.transaction() as session:
        seeds.delete_seed(session, seed)
    assert main(["registry", "trash", "restore", "--all"]) == 0
    capsys.readouterr()
    get_storage().sweep(set(), -10)
    assert ask(capsys, "registry", "trash", "empty", "--older-than", "1")["deleted"] == 0
    emptied = ask(capsys, "registry", "trash", "empty")
    assert (emptied["deleted"], emptied["freed_bytes"]) == (1, entry["size_bytes"])
    assert finding("Trash").finding == "empty"


@pytest.mark.parametrize("words", [["restore", "ffff"], ["restore"], ["restore", "a", "--all"]])
def test_what_is_not_in_the_trash_cannot_be_restored(
    home: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["registry", "trash", *words]) == 2
    assert "workbench registry trash list" in capsys.readouterr().err


def test_of_an_empty_trash_nothing_is_reported_as_restored(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registry", "trash", "restore", "--all"]) == 0
    assert capsys.readouterr().out == "The trash is empty: there is nothing to restore.\n"


def test_no_demo_starts_beside_the_artifacts_of_a_lost_registry(home: Path, seed: str) -> None:
    lose_registry(home)
    database.migrate()
    assert not is_fresh(get_settings())


def test_a_backup_is_made_on_request_and_reported(home: Path, seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not finding("Backup").ok
    assert Path(ask(capsys, "registry", "backup")["path"]).is_file()
    assert "made just now" in finding("Backup").finding


def test_a_backup_of_another_registry_is_not_taken_for_one_of_this(
    home: Path, seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["registry", "backup"]) == 0
    lose_registry(home)
    assert "made just now" in finding("Backup").finding  # it may help
    database.migrate()
    assert finding("Backup").finding.startswith(
        "There is no backup of this registry, but 1 backup of another registry in "
    )


def test_a_registry_that_must_be_migrated_is_not_lost(home: Path, seed: str) -> None:
    database.close_engines()
    with closing(sqlite3.connect(home / "registry.db")) as older, older:
        older.execute("UPDATE alembic_version SET version_num = '0005'")
    assert finding("Artifacts").next_step == "Run `workbench migrate`."


def test_a_registry_that_does_not_answer_is_not_lost(seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database.close_engines()
    monkeypatch.setenv("WORKBENCH_DATABASE_URL", "postgresql://nobody@/none?host=/nowhere")
    get_settings.cache_clear()
    assert finding("Artifacts").next_step == "Start the database server and try again."


@pytest.mark.parametrize("days", ["inf", "nan", "1e308", "-1"])
def test_the_trash_is_emptied_of_what_is_a_number_of_days_old(
    home: Path, days: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["registry", "trash", "empty", "--older-than", days]) == 2
    assert "must be 0 to 36,500 days" in capsys.readouterr().err


def test_a_registry_that_starts_anew_adopts_the_artifacts(
    home: Path, seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_registry(home)
    database.migrate()
    assert main(["registry", "backup"]) == 2
    assert "belong to another registry" in capsys.readouterr().err
    assert ask(capsys, "registry", "adopt")["num_unknown"] == 1
    assert finding("Artifacts").ok
    garbage_collection.sweep(get_settings())
    assert len(ask(capsys, "registry", "trash", "list")) == 1


def test_what_a_killed_job_left_is_swept_immediately(home: Path, seed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with database.transaction() as session:
        job_id = jobs.create_job(session, MakeSeed(name="other", domains=["law"]))
        fence = leases.claim(session, job_id, "somebody", 30.0, 3)
        assert fence is not None
        leases.finish(session, job_id, fence, "done")
    work = get_settings().jobs_folder / job_id / "work"
    work.mkdir(parents=True)
    made = ask(capsys, "registry", "sweep")
    assert made == {"removed": [str(work)], "moved": []}
    assert not work.exists()
    assert main(["registry", "sweep"]) == 0
    assert "Removed 0 leftovers; moved 0 folders to the trash." in capsys.readouterr().out
