"""What the processes of a training of MoDE are told, as a file of JSON."""

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
from engine.training.layout import Layout


@dataclass(frozen=True)
class ModeTask:
    """The first process has the backbone; the experts are shared out over the others, in order."""

    expert_set: ExpertSet
    data: TrainingData
    folder: Path  # of the checkpoints, and of what is made
    device: str = "auto"

    def held(self, rank: int, num_ranks: int) -> tuple[str, ...]:
        """The keys of the experts that a process has."""
        return Layout(tuple(self.expert_set.keys), num_ranks - 1).held(rank - 1) if rank else ()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=str, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> ModeTask:
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        lineup, lesson = said["lineup"], said["lesson"]
        experts = tuple(
            ExpertInit(
                one["key"], one["name"], ModeConfig(**one["shape"]), one["kept"] and _kept(one["kept"]), one["part"]
            )
            for one in lineup["experts"]
        )
        domains, retained = (tuple(_domain(one) for one in lesson[which]) for which in ("domains", "retained"))
        return cls(
            ExpertSet(lineup["id"], _kept(lineup["base"]), experts, lineup["learning"]),
            TrainingData(domains, retained, TrainingConfig(**lesson["config"])),
            Path(said["folder"]),
            said["device"],
        )


def _kept(said: Mapping[str, str]) -> ArtifactRef:
    return ArtifactRef(Path(said["folder"]), said["sha256"])


def _domain(said: Mapping[str, str]) -> PackedDomain:
    return PackedDomain(said["name"], said["expert"], Path(said["folder"]))
