"""The experts beside a backbone and their initialization, described without loading anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby

from engine.events import Progress
from engine.files import ArtifactRef
from engine.methods.mode.active_experts import ActiveExperts
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.files import open_backbone, read_parts
from engine.methods.mode.flops import Learning
from engine.methods.mode.model import ModeModel


@dataclass(frozen=True)
class ExpertInit:
    """An expert by its key in a model: a new one of this shape, or a part of a stored expert."""

    key: str
    name: str  # in gate weights
    shape: ModeConfig
    kept: ArtifactRef | None = None
    part: str = ""  # its name in the stored expert


@dataclass(frozen=True)
class ExpertSet:
    """Experts on one backbone, known together as `id`. The experts are trained, or their gates alone."""

    id: str
    base: ArtifactRef
    experts: tuple[ExpertInit, ...]
    learning: Learning = "experts"

    @property
    def keys(self) -> list[str]:
        return [one.key for one in self.experts]

    def backbone(self) -> ModeModel:
        """Loads the backbone without experts; every byte is checked before use."""
        return open_backbone(self.base, self.experts[0].shape.num_blocks)

    def add_to(self, model: ModeModel, keys: Collection[str]) -> Iterator[Progress]:
        """Adds some of the experts; only the needed parts of stored experts are read.

        Raises ModelError where one is of another backbone, DamagedFileError where a folder is not what was written.
        """
        chosen, done = [one for one in self.experts if one.key in keys], 0
        for kept, group in groupby(chosen, key=lambda one: one.kept):
            some = list(group)
            names = {one.part for one in some}
            parts = {part.name: part for part in read_parts(kept, str(self.base.sha256), names)} if kept else {}
            for one in some:
                model.add_expert(one.key, one.shape, parts[one.part].state if kept else None)
            done += len(some)
            yield Progress(done, len(chosen), "experts", "loading experts", is_first=True)

    def loaded(self) -> ActiveExperts:
        """Loads the backbone with all experts."""
        model = self.backbone()
        for _ in self.add_to(model, self.keys):
            pass
        return self.of(model)

    def of(self, model: ModeModel) -> ActiveExperts:
        """All experts of the set as active experts of a model that has them."""
        return ActiveExperts(model, self.keys, self.id, self.learning, [one.name for one in self.experts])
