"""The task of a MoDE training's processes, as a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from engine.config import TrainingConfig
from engine.files import ArtifactRef
from engine.methods.mode.config import ModeConfig
from engine.methods.parts.training import PartInit, PartSet, TrainingData
from engine.training.data import PackedDomain
from engine.training.distributed import Layout

if TYPE_CHECKING:
    from engine.methods.mode.model import ModeModel


@dataclass(frozen=True)
class ModeTask:
    """A MoDE training: the first process has the backbone; the others share the experts, in order."""

    part_set: PartSet
    data: TrainingData
    folder: Path  # of the checkpoints, and of what is made
    device: str = "auto"

    def held(self, rank: int, num_ranks: int) -> tuple[str, ...]:
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
                one["key"], one["name"], ModeConfig(**one["shape"]), one["kept"] and _kept(one["kept"]), one["part"]
            )
            for one in part_set["experts"]
        )
        domains, retained = (tuple(_domain(one) for one in data[which]) for which in ("domains", "retained"))
        return cls(
            PartSet(part_set["id"], _kept(part_set["base"]), experts, part_set["method"], part_set["learning"]),
            TrainingData(domains, retained, TrainingConfig(**data["config"])),
            Path(values["folder"]),
            values["device"],
        )


def _kept(values: Mapping[str, str]) -> ArtifactRef:
    return ArtifactRef(Path(values["folder"]), values["sha256"])


def _domain(values: Mapping[str, str]) -> PackedDomain:
    return PackedDomain(values["name"], values["expert"], Path(values["folder"]))
