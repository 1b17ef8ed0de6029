"""Files without a purpose go; whatever a row needs, or may need soon, stays."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tiny_kind import job_spec
from world import RunningWorkbench

from jobs import garbage_collection
from jobs.attempt.attempt import take
from jobs.attempt.work import Work
from jobs.queue import submit
from jobs.queue.scheduler import SWEEP_SECONDS, Scheduler
from jobs.uploads import names_file, uploads_folder
from workbench.errors import RegistryMismatchError, StorageError
from workbench.job_records import jobs as rows
from workbench.job_records import leases
from workbench.kinds.analysis import Classify
from workbench.kinds.data import ImportCorpus
from workbench.registry import database
from workbench.registry.backups import list_backups
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact
from workbench.settings import Settings
from workbench.store import ownership
from workbench.store.artifacts import register_artifact
from workbench.store.rebuild import rebuild
from workbench.store.storage import OWNER, get_storage
from workbench.store.trash import Trashed


@pytest.fixture
def uploads(servers: RunningWorkbench) -> Path:
    return uploads_folder(servers.settings.root)


def upload(uploads: Path, hours: float) -> Path:
    """A folder that the browser filled so many hours ago."""
    folder = uploads / uuid.uuid4().hex
    folder.mkdir(parents=True)
    (folder / "0001.txt").touch()
    return aged(folder, hours)


def aged(folder: Path, hours: float) -> Path:
    then = time.time() - hours * 3600
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))
    return folder


def create(path: Path) -> str:
    with database.transaction() as session:
        return rows.create_job(session, ImportCorpus(name="law", path=str(path)))


def test_the_folder_of_a_job_without_a_row_goes(servers: RunningWorkbench) -> None:
    job_id, events = submit.run_now(job_spec("problem"))
    with pytest.raises(Exception, match="rate"):
        list(events)
    mine = servers.settings.jobs_folder / job_id
    orphan, foreign = mine.with_name("a" * 32), mine.with_name("notes")
    young = mine.with_name("b" * 32)
    for folder in (orphan, foreign, young):
        (folder / "work").mkdir(parents=True)
    for folder in (mine, orphan, foreign):
        aged(folder, 25)
    garbage_collection.sweep(servers.settings)
    assert [one.exists() for one in (mine, young, foreign, orphan)] == [True, True, True, False]
    [entry] = garbage_collection.trash_entries(servers.settings)
    assert (entry.kind, entry.id) == ("job", orphan.name)
    garbage_collection.restore(servers.settings, [entry])
    assert (orphan / "work").is_dir()


def test_an_upload_goes_an_hour_after_it_came_unless_an_import_waits_for_it(
    servers: RunningWorkbench, uploads: Path
) -> None:
    young, old, wanted, of_one_file = (upload(uploads, hours) for hours in (0.5, 2, 2, 2))
    job_id = create(wanted)
    create(of_one_file / "0001.txt")
    garbage_collection.sweep(servers.settings)
    assert [one.exists() for one in (young, old, wanted, of_one_file)] == [True, False, True, True]
    submit.request_stop(job_id, "cancel")
    garbage_collection.sweep(servers.settings)
    assert [one.exists() for one in (young, wanted, of_one_file)] == [True, False, True]


def test_an_upload_stays_for_an_unfinished_job_of_any_kind_that_reads_it(
    servers: RunningWorkbench, uploads: Path
) -> None:
    classified, of_missing_kind, unread = (upload(uploads, 2) for _ in range(3))
    with database.transaction() as session:
        rows.create_job(session, Classify(mixture="m", path=str(classified)))
        job_id = rows.create_job(session, job_spec())
        spec = {"kind": "uninstalled", "files": [{"at": str(of_missing_kind)}]}
        row = session.get_one(Job, job_id)
        row.kind, row.spec = "uninstalled", spec
    garbage_collection.sweep(servers.settings)
    assert [one.exists() for one in (classified, of_missing_kind, unread)] == [True, True, False]


def test_the_names_of_uploaded_files_stay_while_something_names_the_upload(
    servers: RunningWorkbench, uploads: Path
) -> None:
    named, forgotten = upload(uploads, 2), upload(uploads, 2)
    for folder in (named, forgotten):
        names_file(folder).write_text("{}", encoding="utf-8")
    submit.request_stop(create(named), "cancel")
    garbage_collection.sweep(servers.settings)
    assert [names_file(one).exists() for one in (named, forgotten)] == [True, False]


# what killed processes left --------------------------------------------------------------------------


def killed_while_storing(settings: Settings, job_id: str) -> tuple[Work, Path, Path]:
    """A claimed job that made one artifact without a row, and the beginning of another; it left a checkpoint."""
    claim = take(settings, job_id, "somebody")
    assert claim is not None
    work, complete, half = Work(claim, settings), "a" * 32, "b" * 32
    (work.folder / "step").write_text("7")
    with work.storage.new(complete) as folder:
        (folder / "tokens").write_text("whole")
    with suppress(KeyboardInterrupt), work.storage.new(half):
        raise KeyboardInterrupt
    aside = settings.artifacts_folder / f".{half}.12345.new"
    aside.mkdir()
    (aside / "tokens").write_text("half")
    return work, settings.artifacts_folder / complete, aside


def test_what_a_job_left_goes_with_the_first_round_after_its_end(servers: RunningWorkbench) -> None:
    settings = servers.settings
    job_id = submit.submit(job_spec())
    work, complete, aside = killed_while_storing(settings, job_id)
    Scheduler(settings).round()
    assert [complete.exists(), aside.exists(), work.folder.exists()] == [True, True, True]  # it runs
    with database.transaction() as session:
        leases.finish(session, job_id, work.claim.fence, "done")
    Scheduler(settings).round()
    assert [complete.exists(), aside.exists(), work.folder.exists()] == [False, False, False]
    assert [entry.id for entry in garbage_collection.trash_entries(settings)] == [complete.name]
    assert garbage_collection.remove_all_leftovers(settings) == []


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_a_job_that_may_be_retried_keeps_what_it_made(servers: RunningWorkbench, ending: Any) -> None:
    settings = servers.settings
    job_id = submit.submit(job_spec())
    work, complete, aside = killed_while_storing(settings, job_id)
    with database.transaction() as session:
        leases.finish(session, job_id, work.claim.fence, ending)
    assert garbage_collection.remove_all_leftovers(settings) == [aside]
    assert complete.exists()
    assert (work.folder / "step").exists()


def test_an_artifact_with_a_row_or_of_another_registry_stays_and_gets_its_record(servers: RunningWorkbench) -> None:
    settings, ids = servers.settings, ("c" * 32, "d" * 32)
    job_id = submit.submit(job_spec())
    work, _, _ = killed_while_storing(settings, job_id)
    for id in ids:
        with work.storage.new(id) as folder:
            (folder / "tokens").write_text(id)
    work.storage.records.write(ids[1], {"rows": {}})  # another registry's
    with database.transaction() as session:
        register_artifact(session, work.storage, ids[0], "tokens", job_id=job_id)
        leases.finish(session, job_id, work.claim.fence, "done")
    work.storage.records.remove(ids[0])  # its process was killed before it wrote it
    Scheduler(settings).round()
    assert [work.storage.path(id).exists() for id in ids] == [True, True]
    assert work.storage.records.is_live(ids[0])


def test_small_files_that_were_never_completed_go_after_half_a_minute(servers: RunningWorkbench) -> None:
    settings = servers.settings
    folders = [settings.artifacts_folder, settings.artifacts_folder / "records", settings.root / "queue"]
    old, young = [], []
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        old.append(folder / ".a.json.1.new")
        young.append(folder / ".b.json.2.new")
    old.append(folders[-1] / ".c.msg.1.old")
    young.append(folders[-1] / ".d.msg.1.old")
    for file in (*old, *young):
        file.touch()
    for file in old:
        os.utime(file, (time.time() - 31, time.time() - 31))
    assert sorted(garbage_collection.remove_all_leftovers(settings)) == sorted(old)
    assert all(file.exists() for file in young)


# a registry that does not know what is there ---------------------------------------------------------


def keep_artifacts(settings: Settings, count: int, hours: float = 48) -> list[Path]:
    """Artifacts as jobs would make them, registered and two days old."""
    storage, ids = get_storage(settings), [uuid.uuid4().hex for _ in range(count)]
    with database.transaction(settings) as session:
        for id in ids:
            with storage.new(id) as folder:
                (folder / "model").write_text(id)
            register_artifact(session, storage, id, "thing").created_at = time.time() - hours * 3600
    age_owner(settings)
    return [aged(storage.path(id), hours) for id in ids]


def age_owner(settings: Settings) -> None:
    """The artifacts were claimed two days ago."""
    if (file := settings.artifacts_folder / OWNER).exists():
        os.utime(file, (time.time() - 48 * 3600,) * 2)


def leave_orphan(settings: Settings, name: str = "a", hours: float = 30) -> Path:
    """An artifact that no row knows."""
    orphan = settings.artifacts_folder / (name * 32)
    orphan.mkdir(parents=True)
    return aged(orphan, hours)


def lose_registry(settings: Settings) -> None:
    """registry.db is gone, and the next start makes an empty one."""
    database.close_engines()
    for file in settings.root.glob("registry.db*"):
        file.unlink()
    database.migrate(settings)


@pytest.mark.parametrize("which", ["a new one after the old was lost", "that of a second home with the same artifacts"])
def test_a_sweep_by_another_registry_takes_nothing(servers: RunningWorkbench, tmp_path: Path, which: str) -> None:
    kept, settings = keep_artifacts(servers.settings, 5), servers.settings
    if which.startswith("a new one"):
        lose_registry(settings)
    else:
        settings = Settings(home=tmp_path / "second", artifacts=settings.artifacts_folder)
        database.migrate(settings)
    with pytest.raises(RegistryMismatchError):
        garbage_collection.sweep(settings)
    assert all(folder.is_dir() for folder in kept)


def forget_owner(settings: Settings) -> None:
    """The artifacts are as the version before left them: nothing says whose they are."""
    (settings.artifacts_folder / "registry.json").unlink()
    shutil.rmtree(settings.artifacts_folder / "records")


def test_artifacts_of_the_version_before_are_safe_from_a_new_registry(servers: RunningWorkbench) -> None:
    kept = keep_artifacts(servers.settings, 5)
    forget_owner(servers.settings)
    lose_registry(servers.settings)
    kept += keep_artifacts(servers.settings, 1)  # it is in use already when it first sweeps
    with pytest.raises(RegistryMismatchError, match="knows 1 of 6 artifacts"):
        garbage_collection.sweep(servers.settings)
    assert all(folder.is_dir() for folder in kept)


def test_artifacts_of_the_version_before_belong_to_the_registry_that_knows_them(servers: RunningWorkbench) -> None:
    kept = keep_artifacts(servers.settings, 5)
    forget_owner(servers.settings)
    orphan = leave_orphan(servers.settings)
    garbage_collection.sweep(servers.settings)
    assert orphan.is_dir()  # another registry may still have to record it
    age_owner(servers.settings)
    garbage_collection.sweep(servers.settings)
    storage = get_storage(servers.settings)
    assert storage.ids() == {folder.name for folder in kept}
    assert all(storage.records.is_live(folder.name) for folder in kept)
    with database.reading(servers.settings) as session:
        assert storage.owner() == ownership.find_registry_id(session)


@pytest.mark.parametrize(("known", "unknown", "hours"), [(1, 1, 30), (5, 1, 72)])
def test_a_registry_claims_nothing_that_it_does_not_know_for_certain(
    servers: RunningWorkbench, known: int, unknown: int, hours: float
) -> None:
    kept = keep_artifacts(servers.settings, known)
    forget_owner(servers.settings)
    kept += [leave_orphan(servers.settings, name, hours) for name in "ab"[:unknown]]
    with pytest.raises(RegistryMismatchError, match=f"knows {known} of {known + unknown} artifacts"):
        garbage_collection.sweep(servers.settings)
    assert get_storage(servers.settings).owner() is None
    assert all(folder.is_dir() for folder in kept)


@pytest.mark.parametrize("first", ["larger", "smaller"])
def test_two_registries_of_the_version_before_that_share_artifacts_lose_none(
    servers: RunningWorkbench, tmp_path: Path, first: str
) -> None:
    smaller = Settings(home=tmp_path / "second", artifacts=servers.settings.artifacts_folder)
    database.migrate(smaller)
    kept = keep_artifacts(servers.settings, 3, 50) + keep_artifacts(smaller, 2)
    forget_owner(servers.settings)
    for settings in (servers.settings, smaller)[:: 1 if first == "larger" else -1]:
        with suppress(RegistryMismatchError):
            garbage_collection.sweep(settings)
    age_owner(servers.settings)
    garbage_collection.sweep(servers.settings)
    with pytest.raises(RegistryMismatchError):
        garbage_collection.sweep(smaller)
    assert all(folder.is_dir() for folder in kept)


def test_artifacts_whose_owner_cannot_be_read_stay_until_a_rebuild(servers: RunningWorkbench) -> None:
    keep_artifacts(servers.settings, 2)
    (servers.settings.artifacts_folder / OWNER).write_text("")
    orphan = leave_orphan(servers.settings)
    with pytest.raises(RegistryMismatchError, match="registry rebuild"):
        garbage_collection.sweep(servers.settings)
    assert orphan.is_dir()
    storage = get_storage(servers.settings)
    with database.transaction(servers.settings) as session:
        rebuild(session, storage)
    with database.reading(servers.settings) as session:
        assert storage.owner() == ownership.find_registry_id(session)


def copy_of_registry(settings: Settings) -> bytes:
    """The bytes of registry.db, all of them."""
    database.close_engines()
    file = settings.root / "registry.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.read_bytes()


def put_back(settings: Settings, registry: bytes) -> None:
    """An older registry.db takes the place of the present one."""
    database.close_engines()
    for file in settings.root.glob("registry.db*"):
        file.unlink()
    (settings.root / "registry.db").write_bytes(registry)


@pytest.mark.parametrize(("before", "after", "refused"), [(2, 5, True), (5, 2, False)])
def test_an_older_registry_takes_nothing_that_came_later(
    servers: RunningWorkbench, before: int, after: int, refused: bool
) -> None:
    kept = keep_artifacts(servers.settings, before)
    older = copy_of_registry(servers.settings)
    kept += keep_artifacts(servers.settings, after)
    put_back(servers.settings, older)
    if refused:
        with pytest.raises(RegistryMismatchError, match="knows 2 of 7 artifacts"):
            garbage_collection.sweep(servers.settings)
    else:
        garbage_collection.sweep(servers.settings)
    assert all(folder.is_dir() for folder in kept)


def test_two_homes_with_one_registry_and_one_folder_of_artifacts_sweep_both(
    servers: RunningWorkbench, tmp_path: Path
) -> None:
    kept = keep_artifacts(servers.settings, 3)
    url, folder = servers.settings.database, servers.settings.artifacts_folder
    second = Settings(home=tmp_path / "second", database_url=url, artifacts=folder)
    kept += keep_artifacts(second, 3)
    for settings, name in ((second, "a"), (servers.settings, "b")):
        orphan = leave_orphan(settings, name)
        garbage_collection.sweep(settings)
        assert not orphan.exists()
    assert all(one.is_dir() for one in kept)


def test_an_artifact_whose_row_was_deleted_goes_to_the_trash_however_many_there_are(servers: RunningWorkbench) -> None:
    kept = keep_artifacts(servers.settings, 4)
    with database.transaction(servers.settings) as session:
        for folder in kept[1:]:
            session.delete(session.get_one(Artifact, folder.name))
    garbage_collection.sweep(servers.settings)
    assert [folder.is_dir() for folder in kept] == [True, False, False, False]
    assert {entry.id for entry in garbage_collection.trash_entries(servers.settings)} == {
        folder.name for folder in kept[1:]
    }
    assert garbage_collection.empty_trashes(servers.settings, 0)[0] == 3
    assert get_storage(servers.settings).records.ids() == {kept[0].name}


def test_a_registry_that_adopts_the_artifacts_sweeps_what_it_does_not_know(servers: RunningWorkbench) -> None:
    kept = keep_artifacts(servers.settings, 2)
    lose_registry(servers.settings)
    storage = get_storage(servers.settings)
    with database.transaction(servers.settings) as session:
        assert ownership.adopt(session, storage) == 2
    garbage_collection.sweep(servers.settings)
    assert storage.trash.ids() == {folder.name for folder in kept}


def test_the_scheduler_reports_a_refused_sweep_and_continues(
    servers: RunningWorkbench, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = keep_artifacts(servers.settings, 2)
    lose_registry(servers.settings)
    scheduler = Scheduler(servers.settings)
    scheduler._swept_at -= SWEEP_SECONDS + 1
    scheduler.round()
    message = capsys.readouterr().err
    assert "error: The artifacts in" in message
    assert "belong to another registry. Nothing is removed." in message
    assert all(folder.is_dir() for folder in kept)
    assert list_backups(servers.settings) == []  # an empty registry's backups must not push out the good ones


def test_what_cannot_be_restored_stops_nothing_else(servers: RunningWorkbench) -> None:
    kept = keep_artifacts(servers.settings, 3)
    with database.transaction(servers.settings) as session:
        for folder in kept[:2]:
            session.delete(session.get_one(Artifact, folder.name))
    orphan = servers.settings.jobs_folder / ("c" * 32)
    orphan.mkdir(parents=True)
    aged(orphan, 48)
    garbage_collection.sweep(servers.settings)
    entries = garbage_collection.trash_entries(servers.settings)
    taken = sorted(kept[:2])[0]
    taken.mkdir()
    report = garbage_collection.restore(servers.settings, entries)
    assert [folder.is_dir() for folder in (*kept, orphan)] == [True] * 4
    assert [(one.thing, one.name) for one in report.left] == [("artifact", taken.name)]
    assert [entry.id for entry in garbage_collection.trash_entries(servers.settings)] == [taken.name]
    with pytest.raises(StorageError, match="exists already"):
        garbage_collection.restore(servers.settings, garbage_collection.trash_entries(servers.settings))


def test_only_what_goes_from_the_trash_is_sized(servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep_artifacts(servers.settings, 2)
    trash, sized = get_storage(servers.settings).trash, []
    old, young = (trash.put(folder, "artifact") for folder in kept)
    old = old.rename(old.with_name(f"20200101T000000Z-artifact-{kept[0].name}"))
    monkeypatch.setattr(Trashed, "size_bytes", property(lambda one: sized.append(one.path) or 7))
    assert garbage_collection.empty_trashes(servers.settings) == (1, 7)
    assert (sized, young.is_dir()) == ([old], True)


def test_the_scheduler_backs_up_daily(servers: RunningWorkbench) -> None:
    keep_artifacts(servers.settings, 1)
    for _ in range(2):
        Scheduler(servers.settings).round()
    assert len(list_backups(servers.settings)) == 1
