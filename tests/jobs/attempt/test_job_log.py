"""The log of a job is read on every machine that shares the store, whichever of them ran it."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_kind import job_spec
from world import HERE, RunningWorkbench, eventually

from engine.errors import Problem
from jobs.attempt.attempt import run_here, take
from jobs.attempt.job_log import MAX_BYTES, is_newest_here, last_lines, read_log, upload_log
from jobs.attempt.work import log_path
from jobs.queue import submit, tasks
from tests.services.s3_server import BUCKET, moto, use
from ui.cli.app import main as cli
from workbench.errors import StoreFailedError
from workbench.job_records import jobs as rows
from workbench.registry import database
from workbench.settings import Settings, get_settings
from workbench.store.object_store import ObjectStore, object_store


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    with moto() as server:
        yield server


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The store that this process and those that it starts share with other machines."""
    object_store.cache_clear()
    if request.param == "folder":
        (tmp_path / "mount").mkdir()
        made = object_store(f"file://{tmp_path}/mount")
    else:
        use(request.getfixturevalue("s3"), monkeypatch)
        made = object_store(f"s3://{BUCKET}/{uuid.uuid4().hex}")
        if made and not made._fs.exists(BUCKET):
            made._fs.mkdir(BUCKET)
    assert made is not None
    monkeypatch.setenv("WORKBENCH_STORE", made.url)
    yield made
    object_store.cache_clear()


@pytest.fixture
def here(store: ObjectStore, servers: RunningWorkbench, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of the machine whose worker runs jobs."""
    monkeypatch.setattr(tasks, "RUNNER", [sys.executable, str(HERE / "tiny_runner.py")])
    assert servers.settings.store == store.url
    return servers.settings


@pytest.fixture
def there(here: Settings, tmp_path: Path) -> Settings:
    """The settings of another machine."""
    return Settings(home=tmp_path / "there", store=here.store, database_url=here.database)


def run_on(settings: Settings, job_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the queue's jobs as a worker of that machine."""
    monkeypatch.setenv("WORKBENCH_HOME", str(settings.root))
    monkeypatch.setenv("WORKBENCH_DATABASE_URL", settings.database)
    get_settings.cache_clear()
    tasks.run(job_id)


def write_line(settings: Settings, job_id: str, line: str) -> None:
    with log_path(settings, job_id).open("a") as log:
        log.write(f"{line}\n")


def test_another_machine_reads_the_full_log_of_a_job_that_crashed(
    here: Settings, there: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit.submit(job_spec("abort"))
    run_on(here, job_id, monkeypatch)
    log = read_log(there, job_id)
    assert [log.count(words) for words in ("Attempt 1 by", "Attempt 2 by", "Attempt 3 by")] == [1, 1, 1]
    assert log.count("Fatal Python error: Aborted") == 3  # what no process could send itself
    assert log == log_path(here, job_id).read_text()
    assert not log_path(there, job_id).exists()


def test_another_machine_reads_why_a_process_died_before_its_claim(
    here: Settings, there: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "RUNNER", [sys.executable, "-c", "import no_such_module"])
    job_id = submit.submit(job_spec())
    run_on(here, job_id, monkeypatch)
    log = read_log(there, job_id)
    assert log.count("No module named 'no_such_module'") == 3
    assert log == log_path(here, job_id).read_text()


def test_what_a_process_prints_before_its_claim_is_uploaded_too(
    here: Settings, there: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = f"import runpy; print('a warning'); runpy.run_path({tasks.RUNNER[1]!r}, run_name='__main__')"
    monkeypatch.setattr(tasks, "RUNNER", [sys.executable, "-c", runner])
    job_id = submit.submit(job_spec())
    run_on(here, job_id, monkeypatch)
    assert read_log(there, job_id).startswith("a warning\nAttempt 1 by")


def test_attempts_on_two_machines_are_one_log_on_both(
    here: Settings, there: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit.submit(job_spec("problem"))
    run_on(here, job_id, monkeypatch)
    assert is_newest_here(here, job_id)
    submit.retry(job_id, settings=here)
    run_on(there, job_id, monkeypatch)
    assert (is_newest_here(here, job_id), is_newest_here(there, job_id)) == (False, True)
    both = log_path(here, job_id).read_text() + log_path(there, job_id).read_text()
    assert both.count("Choose another rate.") >= 2
    assert read_log(here, job_id) == both


def test_the_log_of_a_running_job_comes_with_its_checkpoints(
    here: Settings, there: Settings, store: ObjectStore
) -> None:
    job_id = submit.submit(job_spec(steps=10_000))
    events = run_here(job_id, here)
    next(events)
    write_line(here, job_id, "still at it")
    eventually(lambda: next(events) and read_log(there, job_id) == "still at it\n")
    write_line(here, job_id, "interrupted")
    events.close()  # type: ignore[attr-defined]
    assert read_log(there, job_id) == "still at it\ninterrupted\n"
    assert len(store.names(f"logs/{job_id}")) == 1


def test_a_store_that_is_away_fails_no_job_and_hides_no_log(
    here: Settings, there: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: ObjectStore, name: str, *_: Any) -> None:
        names.append(name)
        raise StoreFailedError(f"The store {self.url} does not answer.", "Check it.")

    names: list[str] = []
    job_id = submit.submit(job_spec())
    with monkeypatch.context() as patched:
        write = ObjectStore.write
        patched.setattr(
            ObjectStore, "write", lambda self, name, content: (away if "logs/" in name else write)(self, name, content)
        )
        for event in run_here(job_id, here):
            assert event
            write_line(here, job_id, "a line")
        patched.setattr(ObjectStore, "names", away)
        log_path(there, job_id).parent.mkdir(parents=True)
        write_line(there, job_id, "of an earlier attempt")
        assert read_log(there, job_id) == "of an earlier attempt\n"
        assert read_log(here, job_id).startswith("a line\n")
    assert [name for name in names if name.startswith(f"logs/{job_id}/")]
    with database.reading(here) as session:
        assert rows.get_job(session, job_id).state == "done"


def test_a_long_log_is_stored_from_its_last_full_lines(here: Settings, there: Settings) -> None:
    job_id = submit.submit(job_spec())
    assert take(here, job_id, "me") is not None
    lines = [f"{number:07d}" for number in range(MAX_BYTES // 8 + 100)]
    write_line(here, job_id, "\n".join(lines))
    upload_log(here, job_id)
    kept = read_log(there, job_id).splitlines()
    assert kept == lines[-len(kept) :]
    assert MAX_BYTES / 8 - 2 < len(kept) <= MAX_BYTES / 8
    assert read_log(there, job_id, 20).splitlines() == lines[-2:] == read_log(here, job_id, 20).splitlines()


def test_the_log_of_a_job_that_was_deleted_meanwhile_is_not_left(here: Settings, store: ObjectStore) -> None:
    job_id = submit.submit(job_spec("problem"))
    with pytest.raises(Problem):
        list(run_here(job_id, here))
    write_line(here, job_id, "a line")
    log, note = log_path(here, job_id), log_path(here, job_id).with_name("attempt.json")
    files = {path: path.read_bytes() for path in (log, note)}
    upload_log(here, job_id)
    assert store.names(f"logs/{job_id}")
    assert submit.delete(job_id, settings=here)
    assert store.names(f"logs/{job_id}") == set()
    log.parent.mkdir()
    for path, content in files.items():  # of a worker that uploads it just now
        path.write_bytes(content)
    upload_log(here, job_id)
    assert store.names(f"logs/{job_id}") == set()


def test_the_logs_of_a_job_that_the_registry_does_not_know_stay(here: Settings, store: ObjectStore) -> None:
    job_id = submit.submit(job_spec("problem"))
    with pytest.raises(Problem):
        list(run_here(job_id, here))
    store.write(f"logs/{job_id}/00000000.txt", b"of an earlier attempt\n")
    with database.transaction(here) as session:  # as in an older backup
        rows.delete_job(session, job_id)
    write_line(here, job_id, "a line")
    upload_log(here, job_id)
    assert store.names(f"logs/{job_id}") == {"00000000.txt", "00000001.txt"}


def test_a_machine_reads_any_number_of_lines_of_its_own_log(servers: RunningWorkbench) -> None:
    job_id = submit.submit(job_spec())
    lines = [f"{number:07d}" for number in range(MAX_BYTES // 8 + 100)]
    log_path(servers.settings, job_id).parent.mkdir(parents=True)
    write_line(servers.settings, job_id, "\n".join(lines))
    assert last_lines(servers.settings, job_id, len(lines) - 1) == lines[1:]
    assert last_lines(servers.settings, job_id, 2) == lines[-2:]
    assert last_lines(servers.settings, "0" * 32, 2) == []


def test_the_command_names_no_file_of_this_machine_for_the_lines_of_another(
    here: Settings, there: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = submit.submit(job_spec())
    run_on(here, job_id, monkeypatch)
    printed = {}
    for settings in (here, there):
        monkeypatch.setenv("WORKBENCH_HOME", str(settings.root))
        get_settings.cache_clear()
        assert cli(["job", "log", job_id, "--json"]) == 0
        printed[settings.root] = json.loads(capsys.readouterr().out)
    assert printed[here.root]["path"] == str(log_path(here, job_id))
    assert printed[there.root] == {"path": None, "lines": printed[here.root]["lines"]}
    assert printed[there.root]["lines"]


def test_without_a_store_a_log_stays_where_it_is(servers: RunningWorkbench) -> None:
    job_id = submit.submit(job_spec("bug"))
    with pytest.raises(Problem):
        list(run_here(job_id, servers.settings))
    assert "KeyError" in read_log(servers.settings, job_id)
    assert read_log(servers.settings, "0" * 32) == ""
