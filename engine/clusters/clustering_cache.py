"""Clusterings in memory: the gates of requests share them, and their bytes count toward the bound on memory."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from engine.files import ArtifactRef

if TYPE_CHECKING:
    from engine.clusters.artifact import Clustering

_Key = tuple[ArtifactRef, ArtifactRef | None]
_MOST = 4


class ClusteringCache:
    """The clusterings that were needed last, each counted as the bytes of its files: an embedder may be a model."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device  # where the model of an embedder computes
        self._clusterings: OrderedDict[_Key, tuple[Clustering, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, kept: ArtifactRef, seed: ArtifactRef | None) -> Clustering:
        """A clustering, with the seed model that its embedder reads with, if any."""
        with self._lock:
            if (kept, seed) not in self._clusterings:
                num_bytes = _num_bytes(kept) + (_num_bytes(seed) if seed else 0)
                self._clusterings[kept, seed] = _open(kept, seed, self._device), num_bytes
            self._clusterings.move_to_end((kept, seed))
            while len(self._clusterings) > _MOST:
                self._clusterings.popitem(last=False)
            return self._clusterings[kept, seed][0]

    def num_bytes(self) -> int:
        """The bytes of all clusterings."""
        return sum(num_bytes for _, num_bytes in [*self._clusterings.values()])


def _open(kept: ArtifactRef, seed: ArtifactRef | None, device: str) -> Clustering:
    from engine.clusters.artifact import open_clustering  # here, because only clusters need scikit-learn

    return open_clustering(kept, seed, device)


def _num_bytes(kept: ArtifactRef) -> int:
    return sum(path.stat().st_size for path in kept.folder.rglob("*") if path.is_file())
