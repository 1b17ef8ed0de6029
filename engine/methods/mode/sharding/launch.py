"""MoDE training on several processes of this machine, as an iterator of events like training in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.config import TrainingConfig
from engine.errors import TrainingError
from engine.events import Event, Note
from engine.files import ArtifactRef
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.sharding.folders import gather_checkpoints, part_path
from engine.methods.parts.files import assemble
from engine.methods.parts.parts_model import ActiveParts
from engine.methods.parts.training import PartInit, PartSet, PartsTraining, TrainingData
from engine.training.data import PackedDomain
from engine.training.distributed import Layout
from engine.training.launch import run_workers

if TYPE_CHECKING:
    from engine.methods.mode.model import ModeModel


@dataclass(frozen=True)
class ModeTask:
    """A MoDE training: the first process has the backbone; the others share the experts, in order."""

    part_set: PartSet
    data: TrainingData
    folder: Path  # of the checkpoints, and of what is made
    device: str = "auto"

    def keys_of(self, rank: int, num_ranks: int) -> tuple[str, ...]:
        """The keys of a process's experts."""
        return Layout(tuple(self.part_set.keys), num_ranks - 1).held(rank - 1) if rank else ()

    def backbone(self) -> ModeModel:
        """Loads the backbone without experts."""
        return cast("ModeModel", self.part_set.backbone())

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=str, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ModeTask:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        part_set, data = values["part_set"], values["data"]
        experts = tuple(
            PartInit(
                one["key"], one["name"], ModeConfig(**one["shape"]), one["kept"] and _artifact(one["kept"]), one["part"]
            )
            for one in part_set["experts"]
        )
        domains, retained = (
            tuple(PackedDomain(one["name"], one["expert"], Path(one["folder"])) for one in data[which])
            for which in ("domains", "retained")
        )
        return cls(
            PartSet(part_set["id"], _artifact(part_set["base"]), experts, part_set["method"], part_set["learning"]),
            TrainingData(domains, retained, TrainingConfig(**data["config"])),
            Path(values["folder"]),
            values["device"],
        )


def _artifact(values: Mapping[str, str]) -> ArtifactRef:
    return ArtifactRef(Path(values["folder"]), values["sha256"])


def train_mpmd(task: ModeTask, num_processes: int, *, threads: int = 0, log: Path | None = None) -> Iterator[Event]:
    """Trains from the newest checkpoint in the task's folder, or from the start; this process reads no weights.

    When it ends, `part_path` finds each expert there, as its own process wrote it. `threads` are those of each process;
    0 shares the cores out. What the processes print goes to `log`, or where this process prints. Raises TrainingError
    when there are too few processes, or more than can have an expert, or a text is too short; LostRankError when a
    process dies, and what the training itself raises.
    """
    num_experts = len(task.part_set.experts)
    if not 2 <= num_processes <= 1 + num_experts:
        raise TrainingError(
            f"{num_experts} experts and a backbone need 2 to {1 + num_experts} processes, not {num_processes}.",
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


class ModeTraining(PartsTraining):
    """The training of a set of parts in one process or several, as the run asks for."""

    _used = 1  # processes

    def __iter__(self) -> Iterator[Event]:
        requested, most = self.num_processes, 1 + len(self.part_set.experts)  # one has the backbone
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
        parts = {one.name: (one.shape, part_path(self.folder, one.key)) for one in self.part_set.experts}
        base_sha256 = str(self.part_set.base.sha256)
        assemble("mode", parts, folder, base_sha256=base_sha256, tokenizer_sha256=self.tokenizer.sha256)
