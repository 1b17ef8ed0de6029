"""The task of a MoDE training's processes, as a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.config import TrainingConfig
from engine.files import ArtifactRef
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.expert_set import ExpertInit, ExpertSet
from engine.methods.mode.training import TrainingData
from engine.training.data import PackedDomain
from engine.training.distributed import Layout


@dataclass(frozen=True)
class ModeTask:
    """A MoDE training: the first process has the backbone; the others share the experts, in order."""

    expert_set: ExpertSet
    data: TrainingData
    folder: Path  # of the checkpoints, and of what is made
    device: str = "auto"

    def held(self, rank: int, num_ranks: int) -> tuple[str, ...]:
        """The keys of a process's experts."""
        return Layout(tuple(self.expert_set.keys), num_ranks - 1).held(rank - 1) if rank else ()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=str, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ModeTask:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        expert_set, data = values["expert_set"], values["data"]
        experts = tuple(
            ExpertInit(
                one["key"], one["name"], ModeConfig(**one["shape"]), one["kept"] and _kept(one["kept"]), one["part"]
            )
            for one in expert_set["experts"]
        )
        domains, retained = (tuple(_domain(one) for one in data[which]) for which in ("domains", "retained"))
        return cls(
            ExpertSet(expert_set["id"], _kept(expert_set["base"]), experts, expert_set["learning"]),
            TrainingData(domains, retained, TrainingConfig(**data["config"])),
            Path(values["folder"]),
            values["device"],
        )


def _kept(values: Mapping[str, str]) -> ArtifactRef:
    return ArtifactRef(Path(values["folder"]), values["sha256"])


def _domain(values: Mapping[str, str]) -> PackedDomain:
    return PackedDomain(values["name"], values["expert"], Path(values["folder"]))
