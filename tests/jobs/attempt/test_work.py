"""An artifact that jobs share by a key is made again when it is damaged, wherever its copies lie."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_kind import job_spec
from world import RunningWorkbench

from engine.events import Event
from jobs.attempt.attempt import take
from jobs.attempt.work import Work
from jobs.queue import submit
from workbench.errors import StoreFailedError
from workbench.store.object_store import ObjectStore


@pytest.fixture
def work(servers: RunningWorkbench, tmp_path: Path) -> Work:
    (tmp_path / "mount").mkdir()
    settings = servers.settings.model_copy(update={"store": f"file://{tmp_path}/mount"})
    claim = take(settings, submit.submit(job_spec()), "me")
    assert claim is not None
    return Work(claim, settings)


def fill(folder: Path) -> Iterator[Event]:
    (folder / "tokens").write_text("tokens")
    yield from ()


def cached(work: Work) -> tuple[Path, list[str]]:
    """The folder, and what was noted about it."""
    events, notes = work.cached_artifact("tokens:1", "tokens", fill), []
    while True:
        try:
            notes.append(str(next(events)))
        except StopIteration as end:
            return end.value, notes


def test_what_is_damaged_in_the_store_and_was_never_fetched_is_made_again(work: Work, tmp_path: Path) -> None:
    first, _ = cached(work)
    shutil.rmtree(first)  # as on a machine that never had it
    (tmp_path / "mount" / "artifacts" / first.name / "tokens").write_text("Tokens")
    second, notes = cached(work)
    assert second != first
    assert (second / "tokens").read_text() == "tokens"
    assert "its bytes changed. It is made again." in notes[0]
    assert cached(work) == (second, [])


def test_a_store_that_is_away_makes_nothing_again(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = cached(work)
    shutil.rmtree(first)

    def away(*_: object) -> None:
        raise StoreFailedError("The store does not answer.", "Check it.")

    with monkeypatch.context() as patched, pytest.raises(StoreFailedError):
        patched.setattr(ObjectStore, "read", away)
        cached(work)
    assert cached(work) == (first, [])
