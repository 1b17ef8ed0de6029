"""All stored files are hashed again: what is damaged, missing or without a row is named with what depends on it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.journeys.conftest import flip
from ui.cli.app import main
from ui.cli.commands.servers.verify import store_progress
from workbench.integrity import check as integrity
from workbench.registry import database
from workbench.registry.database import reading, transaction
from workbench.registry.experts import expert_row
from workbench.schema.tables import Artifact, Domain, Evaluation, Expert, SeedModel
from workbench.settings import get_settings
from workbench.store.artifacts import register_artifact
from workbench.store.object_store import object_store
from workbench.store.storage import get_storage

from .conftest import Do

EVALUATE = {"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 128}


@pytest.fixture
def home_with_scores(trained: Do, home: Path) -> Path:
    trained(EVALUATE)
    return home


def check(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["verify", "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def folder_of(table: Any, name: str) -> Path:
    with reading() as session:
        return get_storage().path(session.scalars(select(table.artifact_id).where(table.name == name)).one())


def needed_by(fault: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["thing"], one["name"]) for one in fault["needed_by"]]


def test_an_undamaged_workbench_is_as_it_was_written(home_with_scores: Path, capsys) -> None:
    result = check(capsys, 0)
    with reading() as session:
        sizes = session.scalars(select(Artifact.size_bytes)).all()
    assert (result["ok"], result["num_artifacts"], result["num_bytes"]) == (True, len(sizes), sum(sizes))
    assert [result[part] for part in ("faulty", "lost_rows", "leftovers", "registry_faults")] == [[], [], [], []]
    assert main(["verify"]) == 0
    shown = capsys.readouterr()
    assert f"Everything is as it was written: {len(sizes)} artifacts" in shown.out
    assert "[100%]" in shown.err


def test_a_damaged_expert_is_named_with_its_mixture_and_no_other(home_with_scores: Path, capsys) -> None:
    folder = folder_of(Expert, "small/court")
    weights = next(folder.glob("*.safetensors"))
    flip(weights)
    (fault,) = check(capsys, 1)["faulty"]
    assert (fault["id"], fault["state"]) == (folder.name, "damaged")
    assert fault["faults"] == [f"{weights.name} is not the file that was written: its bytes changed."]
    assert needed_by(fault) == [("expert", "small/court"), ("mixture", "small")]
    assert main(["verify"]) == 1
    shown = capsys.readouterr().out
    assert "needed by the expert “small/court”" in shown
    assert "1 fault:" in shown


def test_each_kind_of_fault_is_named_and_no_other(home_with_scores: Path, capsys) -> None:
    with reading() as session:
        scores = get_storage().path(session.scalars(select(Evaluation.artifact_id).limit(1)).one())
        base = get_storage().path(expert_row(session, "small/court").base_id)
        lost = expert_row(session, "small/kitchen").artifact_id
    seed, text = folder_of(SeedModel, "seed"), folder_of(Domain, "sea")
    shutil.rmtree(text)
    (seed / "config.json").unlink()
    (scores / "manifest.json").write_bytes(b"{")
    flip(next(base.glob("*.safetensors")))
    forget_row(lost)
    result = check(capsys, 1)
    faults = {fault["id"]: fault for fault in result["faulty"]}
    assert {id: fault["state"] for id, fault in faults.items()} == {
        text.name: "missing",
        seed.name: "damaged",
        scores.name: "damaged",
        base.name: "damaged",
    }
    assert needed_by(faults[text.name]) == [("domain", "sea")]
    assert needed_by(faults[seed.name]) == [("seed model", "seed")]
    assert [thing for thing, _ in needed_by(faults[scores.name])] == ["evaluation"]
    assert needed_by(faults[base.name])[-1] == ("mixture", "small")
    assert result["lost_rows"] == [lost]


def change_rows(*statements: str, **values: str) -> None:
    """Changes rows as no program of ours would, without the checks of references."""
    database.close_engines()
    with closing(sqlite3.connect(get_settings().root / "registry.db")) as connection:
        for statement in statements:
            connection.execute(statement, values)
        connection.commit()


def forget_row(artifact_id: str) -> None:
    """An expert's rows are lost; its record says that it still exists."""
    of_expert = "(SELECT id FROM experts WHERE artifact_id = :id)"
    change_rows(
        f"DELETE FROM mixture_members WHERE expert_id IN {of_expert}",
        f"DELETE FROM evaluations WHERE expert_id IN {of_expert}",
        "DELETE FROM experts WHERE artifact_id = :id",
        "DELETE FROM artifacts WHERE id = :id",
        id=artifact_id,
    )


def test_an_artifact_of_a_running_job_is_no_fault(home_with_scores: Path, capsys) -> None:
    id = "0" * 32
    with get_storage().new(id) as folder:
        (folder / "text").write_text("not registered yet")
    result = check(capsys, 0)
    assert (result["ok"], result["leftovers"]) == (True, [id])


def test_what_is_deleted_while_it_is_read_is_no_fault(home_with_scores: Path) -> None:
    id, storage = "0" * 32, get_storage()
    with storage.new(id) as folder:
        (folder / "text").write_text("short-lived")
    with transaction() as session:
        register_artifact(session, storage, id, "thing")

    def delete_first(number: int, *_: int) -> None:
        if number == 0:
            with transaction() as session:
                session.delete(session.get_one(Artifact, id))
            shutil.rmtree(storage.path(id))

    assert integrity.check_store(get_settings(), delete_first).faulty == []


def test_a_damaged_registry_is_named(home_with_scores: Path, capsys) -> None:
    change_rows("UPDATE experts SET seed_id = 'gone' WHERE name = :name", name="small/court")
    assert check(capsys, 1)["registry_faults"] == ["A row of experts refers to a missing seed_models."]


def test_progress_names_artifacts_bytes_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ui.cli.commands.servers.verify.time.monotonic", lambda: now[0])
    drawn: list[tuple[str, float]] = []
    see = store_progress(lambda words, share: drawn.append((words, share)))
    see(0, 4, 0, 4000)
    now[0] += 10
    see(1, 4, 1000, 4000)
    see(4, 4, 4000, 4000)
    assert drawn[0] == ("0 of 4 artifacts, 0 B of 4.0 KB checked", 0.0)
    assert drawn[1] == ("1 of 4 artifacts, 1.0 KB of 4.0 KB checked, about 30 s left", 0.25)
    assert drawn[2] == ("4 of 4 artifacts, 4.0 KB of 4.0 KB checked", 1.0)


def test_what_is_damaged_in_a_shared_store_is_named(
    home_with_scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Of an artifact that this machine has not fetched, the store's own copy is looked at."""
    store = tmp_path / "store"
    store.mkdir()
    monkeypatch.setenv("WORKBENCH_STORE", f"file://{store}")
    get_settings.cache_clear()
    object_store.cache_clear()
    folder = folder_of(Expert, "small/court")
    list(get_storage().upload_missing())
    assert check(capsys, 0)["ok"]
    flip(next(folder.glob("*.safetensors")))
    assert check(capsys, 0)["ok"]  # a damaged copy is fetched again
    shutil.rmtree(folder)
    flip(next((store / "artifacts" / folder.name).glob("*.safetensors")))
    (fault,) = check(capsys, 1)["faulty"]
    assert "is not the file that was written" in fault["faults"][0]
    assert ("expert", "small/court") in needed_by(fault)
    object_store.cache_clear()
