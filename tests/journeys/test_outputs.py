"""What leaves the workbench is complete or absent, whatever the format and whenever the work breaks off."""

from __future__ import annotations

import errno
import os
import shutil
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.events import Progress
from engine.files import verify_folder
from engine.packed_file import open_packed
from jobs.attempt.attempt import run_here
from jobs.kinds.training import exports
from jobs.queue.submit import resume, run_now
from tests.journeys.conftest import Do, done
from tests.journeys.test_export import LORA
from tests.journeys.test_export_mixture import WRITES, converter, with_fixed_weights
from workbench.job_records import jobs
from workbench.registry.database import reading
from workbench.settings import get_settings

EXPERT, MIXTURE = {"kind": "export-expert", "expert": "thin/court"}, {"kind": "export-mixture", "mixture": "small"}
SPECS: dict[str, dict[str, Any]] = {
    "hf": {**EXPERT, "format": "hf"},
    "peft": {**EXPERT, "format": "peft"},
    "gguf": {**EXPERT, "format": "gguf"},
    "average": {**MIXTURE, "format": "hf"},
    "average for llama.cpp": {**MIXTURE, "format": "gguf"},
    "moe": {**MIXTURE, "format": "moe"},
    "packed": {"kind": "pack-expert", "expert": "thin/court", "with_seed": True},
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder of its own to write in."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture(params=SPECS)
def spec(
    request: pytest.FixtureRequest, trained: Do, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """A job that writes `out/it`."""
    converter(tmp_path, monkeypatch, WRITES)
    one = SPECS[request.param]
    if "expert" in one:
        done(trained(LORA))
    else:
        with_fixed_weights()
    return {**one, "file" if one["kind"] == "pack-expert" else "folder": str(out / "it")}


def is_complete(path: Path) -> bool:
    return bool(verify_folder(path) if path.is_dir() else open_packed(path).members)


def break_off(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Lets the work fail when most of an output is written."""

    def breaks(*_: Any) -> None:
        raise error

    monkeypatch.setattr(exports, "write_card", breaks)
    monkeypatch.setattr(shutil, "copyfileobj", breaks)  # by which members of a packed file are written


def test_a_full_disk_in_the_middle_leaves_nothing_and_the_job_resumes(
    spec: dict[str, Any], out: Path, trained: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        break_off(patch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        card = trained(spec)
    assert (card.state, "is full" in card.error) == ("paused", True)
    assert not list(out.iterdir())
    resume(card.id)
    list(run_here(card.id))
    assert is_complete(out / "it")


def test_what_a_killed_attempt_left_goes_with_the_next(spec: dict[str, Any], out: Path) -> None:
    job_id, events = run_now(spec)
    left = out / f".it.{job_id}.new"
    if "file" in spec:
        left.write_bytes(b"half")
    else:
        left.mkdir()
        (left / "half.safetensors").write_bytes(b"half")
    list(events)
    assert [path.name for path in out.iterdir()] == ["it"]
    assert is_complete(out / "it")
    assert "file" in spec or not (out / "it/half.safetensors").exists()


def identity(path: Path) -> tuple[int, int, int]:
    """What changes when a file is written again; that it was read changes only the time of access."""
    facts = path.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def test_an_attempt_that_ends_before_it_is_recorded_does_not_block_the_next(spec: dict[str, Any], out: Path) -> None:
    job_id, events = run_now(spec)
    with closing(events):
        for event in events:
            if isinstance(event, Progress) and event.done == event.total and (out / "it").exists():
                break
    written = identity(out / "it")
    resume(job_id)
    list(run_here(job_id))
    with reading() as session:
        card = done(jobs.get_job(session, job_id))
    assert card.result["num_bytes"] > 0
    assert identity(out / "it") == written  # not written a second time
    assert is_complete(out / "it")


def test_what_somebody_else_wrote_meanwhile_is_not_taken_for_ones_own(spec: dict[str, Any], out: Path) -> None:
    job_id, events = run_now(spec)
    with closing(events):
        for event in events:
            if isinstance(event, Progress) and event.done == event.total and (out / "it").exists():
                break
    target = out / "it"
    file = target / "README.md" if target.is_dir() else target
    file.write_text("mine")
    resume(job_id)
    with pytest.raises(Exception, match="exists already"):
        list(run_here(job_id))
    assert file.read_text() == "mine"


def test_no_file_names_a_folder_of_this_machine(spec: dict[str, Any], out: Path, trained: Do, tmp_path: Path) -> None:
    done(trained(spec))
    files = [file for file in [out / "it", *(out / "it").rglob("*")] if file.is_file()]
    assert files
    for file in files:
        for path in {tmp_path, get_settings().root, Path.home()}:
            assert str(path).encode() not in file.read_bytes(), file


def test_a_file_system_without_hard_links_takes_a_packed_file(
    trained: Do, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))  # as Linux answers on vfat and exFAT

    monkeypatch.setattr(os, "link", refuses)
    done(trained(LORA))
    done(trained({"kind": "pack-expert", "expert": "thin/court", "file": str(out / "it")}))
    assert zipfile.is_zipfile(out / "it")
    assert [path.name for path in out.iterdir()] == ["it"]
