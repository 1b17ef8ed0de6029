"""The experts beside a backbone and their initialization, described without loading anything."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from engine.events import Progress
from engine.files import ArtifactRef
from engine.methods.parts.active_parts import ActiveParts
from engine.methods.parts.files import read_parts
from engine.methods.parts.method import Learning, PartsMethod, get_parts_method
from engine.methods.parts.parts_model import PartsModel


@dataclass(frozen=True)
class PartInit:
    """An expert by its key in a model: a new one of this shape, or a part of a stored expert."""

    key: str
    name: str  # in gate weights
    shape: Any  # a config of the method
    kept: ArtifactRef | None = None
    part: str = ""  # its name in the stored expert


@dataclass(frozen=True)
class PartSet:
    """Experts on one backbone, known together as `id`. The experts are trained, or their gates alone."""

    id: str
    base: ArtifactRef
    experts: tuple[PartInit, ...]
    method: str
    learning: Learning = "experts"

    @property
    def descriptor(self) -> PartsMethod:
        """The method of all of them."""
        return get_parts_method(self.method)

    @property
    def keys(self) -> list[str]:
        return [one.key for one in self.experts]

    def backbone(self) -> PartsModel:
        """Loads the backbone without experts; every byte is checked before use."""
        return self.descriptor.open_base(self.base, self.experts[0].shape)

    def add_to(self, model: PartsModel, keys: Collection[str]) -> Iterator[Progress]:
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

    def load(self, device: torch.device) -> Generator[Progress, None, ActiveParts]:
        """Loads the backbone with all experts."""
        model = self.backbone().to(device)
        yield from self.add_to(model, self.keys)
        return self.of(model)

    def loaded(self) -> ActiveParts:
        """The same at once, where it was built."""
        model = self.backbone()
        for _ in self.add_to(model, self.keys):
            pass
        return self.of(model)

    def of(self, model: PartsModel) -> ActiveParts:
        """All experts of the set as active experts of a model that has them."""
        return ActiveParts(model, self.keys, self.id, self.learning, [one.name for one in self.experts])
