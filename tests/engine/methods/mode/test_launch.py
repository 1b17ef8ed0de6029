"""What the processes of a MoDE training receive, and what is refused before one starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.files import ArtifactRef
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.sharding.launch import ModeTask, train_mpmd
from engine.methods.parts.training import PartInit, PartSet, TrainingData
from engine.training.data import PackedDomain


@pytest.fixture
def task(tmp_path: Path) -> ModeTask:
    """Three experts, one of them new; the text is 400 tokens long."""
    for split, length in (("train", 400), ("dev", 100)):
        np.save(tmp_path / f"{split}.npy", np.arange(length).astype("<u2"))
        np.save(tmp_path / f"{split}.starts.npy", np.zeros(1, dtype="<i8"))
    shape = ModeConfig(num_blocks=2, expert_layers=1, init="random", seed=4)
    kept = ArtifactRef(tmp_path / "law", "its hash")
    experts = [PartInit("part-0", "law", shape, kept, "court"), PartInit("part-1", "code", shape)]
    experts += [PartInit("part-2", "news", shape, kept, "press")]
    domain, other = (PackedDomain(name, "all", tmp_path) for name in ("one", "other"))
    return ModeTask(
        PartSet("all", ArtifactRef(tmp_path / "base", "another"), tuple(experts), "mode", "gates"),
        TrainingData((domain,), (other,), TrainingConfig(num_steps=2, block_size=16, patience=3, learning_rate=1e-3)),
        tmp_path / "work",
        "cpu",
    )


def test_a_task_survives_its_file(task: ModeTask, tmp_path: Path) -> None:
    task.write(tmp_path / "task.json")
    assert ModeTask.read(tmp_path / "task.json") == task


def test_parts_are_shared_out_over_all_processes_but_the_first(task: ModeTask) -> None:
    for num_ranks, most in ((2, 3), (3, 2), (4, 1)):
        held = [task.keys_of(rank, num_ranks) for rank in range(num_ranks)]
        assert held[0] == ()
        assert [key for keys in held for key in keys] == task.part_set.keys
        assert 1 <= min(map(len, held[1:])) <= max(map(len, held[1:])) == most


def test_what_cannot_work_is_refused_before_a_process_starts(task: ModeTask) -> None:
    for number in (1, 5):
        with pytest.raises(TrainingError, match=f"need 2 to 4 processes, not {number}"):
            train_mpmd(task, number)
    long = replace(task.data, config=replace(task.data.config, block_size=200))
    with pytest.raises(TrainingError, match="less than one block of 200"):
        train_mpmd(replace(task, data=long), 2)
    with pytest.raises(TrainingError, match="auto, cpu or cuda, but it is “cuda:1”"):
        train_mpmd(replace(task, device="cuda:1"), 2)
    assert not task.folder.exists()
