"""A workbench is copied while it works, restored elsewhere and moved: nothing is lost, no row refers to its place."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from engine.config import SamplingConfig
from engine.files import MANIFEST, weights_sha256
from engine.loading.host import Host
from jobs import backup as backups
from jobs.attempt.attempt import run_here
from jobs.backup import back_up
from jobs.queue.submit import resume, submit
from jobs.restore import restore
from jobs.uploads import uploads_folder
from tests.journeys.conftest import flip
from ui.cli.app import main
from workbench.errors import DiskFullError, StorageError
from workbench.integrity.check import check_store
from workbench.job_records import jobs
from workbench.questions.perplexities import mix_scores
from workbench.registry import database
from workbench.registry.database import reading
from workbench.registry.experts import expert_row
from workbench.requests.planning import plan
from workbench.schema.base import Base
from workbench.schema.job_tables import Job
from workbench.schema.tables import Corpus, Expert, SeedModel
from workbench.settings import Settings, get_settings
from workbench.store.object_store import ObjectStore, object_store
from workbench.store.storage import get_storage

from .conftest import Do, write_domain

EVALUATE = {"kind": "evaluate", "mixture": "small", "block_size": 32, "max_tokens": 128}
TRAINING = {"num_steps": 12, "block_size": 32, "learning_rate": 5e-3, "checkpoint_every": 3, "evaluate_every": 6}
SAILOR = {"kind": "train-expert", "name": "sailor", "domain": "sea", "mixture": "small", "training": TRAINING}


def start_training(past: int) -> tuple[str, Iterator[Any]]:
    """A training that has made some steps and goes on."""
    job_id = submit(SAILOR)
    events = run_here(job_id)
    while getattr(next(events), "step", 0) <= past:
        pass
    return job_id, events


def weights(settings: Settings, name: str) -> str:
    with reading(settings) as session:
        return weights_sha256(get_storage(settings).path(expert_row(session, name).artifact_id))


def state(settings: Settings, job_id: str) -> str:
    with reading(settings) as session:
        return str(jobs.get_job(session, job_id).state)


def answer(settings: Settings) -> tuple[str, Any]:
    """What a mixture writes, and its stored scores."""
    with reading(settings) as session:
        planned = plan(session, get_storage(settings), "small")
        mixed = mix_scores(session, get_storage(settings), "small").domains
    events = Host(device="cpu").stream(planned, "the court", SamplingConfig(max_tokens=5, seed=1))
    return "".join(getattr(event, "text", "") for event in events), mixed


def use(home: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Makes another home that of this process."""
    database.close_engines()
    monkeypatch.setenv("WORKBENCH_HOME", str(home))
    get_settings.cache_clear()
    return get_settings()


def test_a_backup_made_during_a_training_is_a_workbench_that_trains_on(
    trained: Do, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(EVALUATE)
    before = answer(get_settings())
    job_id, events = start_training(past=7)
    assert main(["backup", str(tmp_path / "copy"), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["num_artifacts"], made["faulty"]) == (len(get_storage().ids()), [])
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    assert list(events)  # the training was not disturbed
    expected = weights(get_settings(), "sailor")

    settings = use(tmp_path / "elsewhere", monkeypatch)
    assert main(["restore", str(tmp_path / "copy"), "--jobs", "--json"]) == 0
    restored = json.loads(capsys.readouterr().out)
    assert (restored["check"]["ok"], len(restored["requeued"])) == (True, 1)
    assert main(["verify"]) == 0
    assert (state(settings, job_id), answer(settings)) == ("queued", before)
    steps = [event.step for event in run_here(job_id) if hasattr(event, "loss")]
    assert min(steps) in (4, 7)  # from a checkpoint
    assert (state(settings, job_id), weights(settings, "sailor")) == ("done", expected)
    assert not (settings.root / MANIFEST).exists()
    assert not (settings.root / backups.CARD).exists()


def killed(work: Callable[[], object]) -> None:
    """A fork that does the work and is expected to be killed in it."""
    if (process := os.fork()) == 0:
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitpid(process, 0)[1] == signal.SIGKILL


def kill_at(number: int) -> Callable[..., None]:
    def see(now: int, *_: int) -> None:
        if now == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return see


@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_killed_backup_or_restoration_leaves_nothing_that_looks_like_one(
    trained: Do, tmp_path: Path, number: int
) -> None:
    settings, target = get_settings(), tmp_path / "copies" / "copy"
    database.close_engines()
    killed(lambda: back_up(settings, target, kill_at(number)))
    assert not target.exists()
    (left,) = target.parent.iterdir()
    with pytest.raises(StorageError, match="is not a backup"):
        restore(Settings(home=tmp_path / "elsewhere"), left)
    assert len(get_storage().ids()) == back_up(settings, target).num_artifacts
    assert list(target.parent.iterdir()) == [target]

    there = Settings(home=tmp_path / "homes" / "other")
    database.close_engines()
    killed(lambda: restore(there, target, see=kill_at(number)))
    assert not there.root.exists()
    assert restore(there, target).check.ok
    assert list(there.root.parent.iterdir()) == [there.root]


def test_a_damaged_backup_is_refused_by_name_and_kept_on_request(trained: Do, tmp_path: Path) -> None:
    copy, there = tmp_path / "copy", Settings(home=tmp_path / "elsewhere")
    back_up(get_settings(), copy)
    with reading() as session:
        id = expert_row(session, "small/court").artifact_id
    for hurt, fault in (
        (copy / "registry.db", "registry.db is not the file that was written"),
        (copy / "artifacts" / "records" / f"{id}.json", f"records/{id}.json is not the file that was written"),
        (next((copy / "artifacts" / id).glob("*.safetensors")), f"demix-expert {id}: "),
        (copy / "artifacts" / id / MANIFEST, f"demix-expert {id}: "),
    ):
        content = hurt.read_bytes()
        flip(hurt)
        with pytest.raises(StorageError, match="The backup is damaged") as refused:
            restore(there, copy)
        assert fault in refused.value.problem
        assert not there.root.exists()
        if hurt.suffix == ".safetensors":
            (damaged,) = restore(there, copy, keep_damaged=True).check.faulty
            assert damaged.id == id
            database.close_engines()
            shutil.rmtree(there.root)
        hurt.write_bytes(content)
    assert restore(there, copy).check.ok


def test_a_backup_that_lost_its_manifest_is_restored_on_request(home: Path, tmp_path: Path) -> None:
    assert home
    copy, there = tmp_path / "copy", Settings(home=tmp_path / "elsewhere")
    back_up(get_settings(), copy)
    (copy / MANIFEST).unlink()
    with pytest.raises(StorageError, match=r"The backup is damaged: manifest\.json cannot be read"):
        restore(there, copy)
    assert restore(there, copy, keep_damaged=True).check.ok


def test_what_was_damaged_before_the_backup_is_named_and_the_rest_is_restored(
    trained: Do, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reading() as session:
        id = expert_row(session, "small/court").artifact_id
    flip(next(get_storage().path(id).glob("*.safetensors")))
    assert main(["backup", str(tmp_path / "copy")]) == 1
    assert "needed by the expert “small/court”" in capsys.readouterr().out
    check = restore(Settings(home=tmp_path / "elsewhere"), tmp_path / "copy").check
    assert ([fault.id for fault in check.faulty], check.lost_rows) == ([id], [])


def test_what_cannot_be_backed_up_or_restored_is_refused_with_a_sentence(
    trained: Do, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, copy = get_settings(), tmp_path / "copy"
    with pytest.raises(StorageError, match="inside the workbench"):
        back_up(settings, home / "copy")
    file = settings.model_copy(update={"database_url": f"sqlite:///{tmp_path}/there.db"})
    back_up(settings, copy)
    with pytest.raises(StorageError, match="exists already"):
        back_up(settings, copy)
    with pytest.raises(StorageError, match="is not empty"):
        restore(settings, copy)
    with pytest.raises(StorageError, match="names a file"):
        restore(file, copy)
    card = json.loads((copy / backups.CARD).read_text())
    (copy / backups.CARD).write_text(json.dumps({**card, "version": "9999"}))
    with pytest.raises(StorageError, match="newer version 9999"):
        restore(Settings(home=tmp_path / "elsewhere"), copy)
    monkeypatch.setattr(backups, "free_bytes", lambda _: 1000)
    with pytest.raises(DiskFullError, match="only 1,000 are free"):
        back_up(settings, tmp_path / "another")
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name or "another" in path.name) == ["copy"]


def test_artifacts_elsewhere_go_where_the_settings_of_the_new_home_say(trained: Do, tmp_path: Path) -> None:
    back_up(get_settings(), tmp_path / "copy")
    there = Settings(home=tmp_path / "elsewhere", artifacts=tmp_path / "weights")
    assert restore(there, tmp_path / "copy").check.ok
    assert check_store(there).ok
    assert not (there.root / "artifacts").exists()
    assert expert_hashes(there) == expert_hashes(get_settings())


def test_what_only_a_shared_store_has_is_in_the_backup_and_what_it_lost_is_named(
    trained: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    monkeypatch.setenv("WORKBENCH_STORE", f"file://{store}")
    get_settings.cache_clear()
    object_store.cache_clear()
    list(get_storage().upload_missing())
    with reading() as session:
        court, kitchen = (expert_row(session, f"small/{name}").artifact_id for name in ("court", "kitchen"))
        seed = session.scalars(select(SeedModel.artifact_id)).first()
    for id in (court, kitchen):
        shutil.rmtree(get_storage().place(id))
    flip(next(get_storage().path(seed).glob("*.safetensors")))  # a damaged copy is fetched again
    flip(next((store / "artifacts" / kitchen).glob("*.safetensors")))
    with monkeypatch.context() as patched, pytest.raises(DiskFullError, match="choose a folder on a larger disk"):
        patched.setattr(ObjectStore, "get_verified", fail_as_full)
        back_up(get_settings(), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert [fault.id for fault in back_up(get_settings(), tmp_path / "copy").faulty] == [kitchen]
    there = Settings(home=tmp_path / "elsewhere", store="")
    assert [fault.id for fault in restore(there, tmp_path / "copy").check.faulty] == [kitchen]
    assert (there.artifacts_folder / court / MANIFEST).exists()
    object_store.cache_clear()


def fail_as_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def expert_hashes(settings: Settings) -> list[str]:
    with reading(settings) as session:
        return [expert.sha256 for expert in plan(session, get_storage(settings), "small").experts]


def test_a_moved_home_opens_and_no_row_names_the_old_one(
    trained: Do, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(EVALUATE)
    trained({"kind": "find-clusters", "name": "topics", "num_clusters": 2, "dimension": 3, "map_size": 0})
    before = answer(get_settings())
    job_id, events = start_training(past=4)
    events.close()  # type: ignore[attr-defined]
    upload = uploads_folder(home) / ("a" * 32)
    upload.mkdir(parents=True)
    shutil.copy(write_domain(tmp_path, "sea"), upload / "0001.jsonl")
    imported = submit({"kind": "import-corpus", "name": "again", "path": str(upload)})
    with reading() as session:
        rows = [
            f"{table.name} {dict(row)}"
            for table in Base.metadata.sorted_tables
            for row in session.execute(select(table)).mappings()
            if not (table.name == "jobs" and row["id"] == imported)  # its upload, which is looked up in the new home
        ]
    assert [row for row in rows if str(home) in row] == []

    database.close_engines()
    moved = tmp_path / "moved" / "here"
    moved.parent.mkdir()
    shutil.move(home, moved)
    settings = use(moved, monkeypatch)
    assert check_store(settings).ok
    assert answer(settings) == before
    resume(job_id)
    steps = [event.step for event in run_here(job_id) if hasattr(event, "loss")]
    assert (min(steps) > 1, state(settings, job_id)) == (True, "done")
    list(run_here(imported))
    with reading() as session:
        assert session.scalars(select(Corpus.name).where(Corpus.name == "again")).one()
        assert session.scalars(select(Expert.name).where(Expert.name == "sailor")).one()
        assert set(session.scalars(select(Job.state))) == {"done"}
