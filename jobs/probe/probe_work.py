"""A job's surroundings in a probe: it reads registry and artifacts, and writes into a temporary folder alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from jobs.attempt.work import Claim, Work
from workbench.store.object_store import ObjectStore, object_store
from workbench.store.storage import Storage, confine

CLAIM = Claim("0" * 32, 0, 1, "probe")  # of no row


class ProbeStorage(Storage):
    """The artifacts of a registry, and new ones in a folder beside them."""

    def __init__(self, folder: Path, made: Path, shared: ObjectStore | None = None) -> None:
        super().__init__(folder, shared)
        self.made = Storage(made)

    def path(self, artifact_id: str) -> Path:
        made = confine(self.made.folder, artifact_id)
        return made if made.exists() else super().path(artifact_id)

    @contextmanager
    def new(self, artifact_id: str) -> Iterator[Path]:
        with self.made.new(artifact_id) as folder:
            yield folder


@dataclass(frozen=True)
class ProbeWork(Work):
    """The work of a job without a row: nothing of it reaches the registry."""

    place: Path = Path()

    @cached_property
    def folder(self) -> Path:
        folder = self.place / "work"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @cached_property
    def storage(self) -> ProbeStorage:
        return ProbeStorage(self.settings.artifacts_folder, self.place / "made", object_store(self.settings.store))

    def share(self, artifact_id: str, kind: str, key: str) -> Path:
        """A new artifact stays the probe's own."""
        del kind, key
        return self.storage.path(artifact_id)

    def transaction(self) -> NoReturn:
        """A job that writes to the registry while it works cannot be probed."""
        raise NotImplementedError("a kind with a probe writes to the registry at its end alone")
