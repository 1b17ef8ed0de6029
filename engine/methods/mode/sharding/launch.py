"""MoDE training on several processes of this machine, as an iterator of events like training in one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engine.errors import TrainingError
from engine.events import Event, Note
from engine.methods.mode.sharding.folders import gather_checkpoints, made_file
from engine.methods.mode.sharding.task import ModeTask
from engine.methods.parts.files import assemble
from engine.methods.parts.parts_model import ActiveParts
from engine.methods.parts.training import PartsTraining
from engine.training.launch import run_workers


def train_mpmd(task: ModeTask, num_processes: int, *, threads: int = 0, log: Path | None = None) -> Iterator[Event]:
    """Trains from the newest checkpoint in the task's folder, or from the start; this process reads no weights.

    When it ends, `made_file` finds each expert there, as its own process wrote it. `threads` are those of each process;
    0 shares the cores out. What the processes print goes to `log`, or where this process prints. Raises TrainingError
    when there are too few processes, or more than can have an expert, or a text is too short; LostRankError when a
    process dies, and what the training itself raises.
    """
    if not 2 <= num_processes <= most_processes(len(task.part_set.experts)):
        raise TrainingError(
            f"{len(task.part_set.experts)} experts and a backbone need 2 to "
            f"{most_processes(len(task.part_set.experts))} processes, not {num_processes}.",
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


class ModeTraining(PartsTraining):
    """The training of a set of parts in one process or several, as the run asks for."""

    _used = 1  # processes

    def __iter__(self) -> Iterator[Event]:
        requested, most = self.num_processes, most_processes(len(self.part_set.experts))
        if requested > most:
            yield Note(
                f"The training uses {most} of {requested} processes: one for the backbone and one for each part."
            )
        self._used = min(requested or 1, most)
        if self._used == 1:
            yield from super().__iter__()
            return
        task = ModeTask(self.part_set, self.data, self.folder, self.device)
        yield from train_mpmd(task, self._used, threads=self.threads, log=self.log)

    def begin(self, active: ActiveParts) -> None:
        gather_checkpoints(self.folder, active.expert_parameters(self.part_set.id), self.data.config)

    def write(self, folder: Path) -> None:
        if self._used == 1:
            super().write(folder)
            return
        parts = {one.name: (one.shape, made_file(self.folder, one.key)) for one in self.part_set.experts}
        base_sha256 = str(self.part_set.base.sha256)
        assemble("mode", parts, folder, base_sha256=base_sha256, tokenizer_sha256=self.tokenizer.sha256)
