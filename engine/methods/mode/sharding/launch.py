"""MoDE training on several processes of this machine, as an iterator of events like training in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engine.errors import TrainingError
from engine.events import Event
from engine.methods.mode.sharding.task import ModeTask
from engine.training.launch import run_workers


def train_mpmd(task: ModeTask, num_processes: int, *, threads: int = 0, log: Path | None = None) -> Iterator[Event]:
    """Trains from the newest checkpoint in the task's folder, or from the start; this process reads no weights.

    When it ends, `made_file` finds each expert there, as its own process wrote it. `threads` are those of each process;
    0 shares the cores out. What the processes print goes to `log`, or where this process prints. Raises TrainingError
    when there are too few processes, or more than can have an expert, or a text is too short; LostRankError when a
    process dies, and what the training itself raises.
    """
    if not 2 <= num_processes <= most_processes(len(task.expert_set.experts)):
        raise TrainingError(
            f"{len(task.expert_set.experts)} experts and a backbone need 2 to "
            f"{most_processes(len(task.expert_set.experts))} processes, not {num_processes}.",
            "Choose one for the backbone, and one for each expert or for several.",
        )
    task.data.check()
    return run_workers(
        replace(task, folder=task.folder.resolve()),
        "engine.methods.mode.sharding.worker",
        num_processes,
        threads=threads,
        log=log,
    )


def most_processes(num_experts: int) -> int:
    """The largest number of processes that all have work."""
    return 1 + num_experts
