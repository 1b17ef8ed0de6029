"""What a finished training keeps for its replay: its last checkpoint but one, and its notes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.files import aside_pattern
from jobs.attempt.leftovers import copy_for_replay, drop_oldest, keep_for_replay, kept_step
from jobs.kinds.shared.resume_guard import mask_rule
from jobs.probe.measuring import CLAIM
from jobs.replay import replay
from jobs.replay.replay import ReplayWork
from workbench.settings import Settings


def finished(home: Path, job_id: str, *, processes: bool = False) -> Path:
    """The working folder of a training that is done."""
    work = home / "jobs" / job_id / "work"
    for root in (work, *([work / "experts" / "part-0"] if processes else [])):
        for step in ("step-00000003", "step-00000006", ".upload-1.new/step-00000003"):
            (root / step).mkdir(parents=True)
            (root / step / "parameters.safetensors").write_bytes(b"x" * 100)
    (work / "sources.json").write_text("{}")
    (work / "throughput.json").write_text("{}")
    return work


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("processes", [False, True])
def test_the_last_checkpoint_but_one_and_the_notes_are_kept(tmp_path: Path, processes: bool) -> None:
    work = finished(tmp_path, "a", processes=processes)
    keep_for_replay(work)
    keep_for_replay(work)  # as by a scheduler that is at it, too
    kept, again = work.with_name("replay"), tmp_path / "again"
    again.mkdir()
    copy_for_replay(kept, again)
    experts = ["experts/part-0/step-00000003/parameters.safetensors"] if processes else []
    assert files(again) == [*experts, "sources.json", "step-00000003/parameters.safetensors"]
    assert kept_step(kept) == 3


@pytest.mark.parametrize("stop_at", range(4))
def test_a_call_that_was_cut_off_is_repeated_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    work, undisturbed = (finished(tmp_path, name, processes=True) for name in ("a", "b"))
    keep_for_replay(undisturbed)
    renames = iter(range(stop_at + 1))
    rename = Path.rename

    def cut_off(path: Path, target: Path) -> Path:
        if next(renames) == stop_at:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", cut_off)
        with pytest.raises(KeyboardInterrupt):
            keep_for_replay(work)
    assert not work.with_name("replay").exists()
    keep_for_replay(work)
    assert files(work.with_name("replay")) == files(undisturbed.with_name("replay"))
    assert not list(work.parent.glob(aside_pattern()))


def test_the_oldest_checkpoints_are_deleted_and_the_notes_stay(tmp_path: Path) -> None:
    kept = []
    for name in ("a", "b", "c"):
        work = finished(tmp_path, name)
        keep_for_replay(work)
        kept.append(work.with_name("replay"))
    drop_oldest(Settings(home=tmp_path, replay_bytes=250))
    assert [kept_step(one) for one in kept] == [0, 3, 3]
    drop_oldest(Settings(home=tmp_path, replay_bytes=99))
    assert [kept_step(one) for one in kept] == [0, 0, 0]
    assert files(kept[0]) == ["sources.json"]


@pytest.mark.parametrize("rule", [1, 2])
def test_a_replay_whose_notes_are_gone_masks_by_the_rule_of_the_expert(tmp_path: Path, rule: int) -> None:
    work = ReplayWork(CLAIM, Settings(home=tmp_path), root=tmp_path / "again")
    training: Any = SimpleNamespace(job_id="a" * 32, row_order="spec", parent_id=None, mask_rule=rule)
    replay._put_inputs(work, training)
    assert mask_rule(work) == rule
