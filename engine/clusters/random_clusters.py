"""Random clusters (C-BTM §7.1), a baseline without meaning.

Shapes: N documents, K clusters, D dimensions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from engine.clusters.centroids import Clusters, Floats
from engine.clusters.config import ClusterConfig
from engine.events import Progress


def random_clusters(vectors_ND: Floats, config: ClusterConfig) -> Iterator[Progress | Clusters]:
    """Yields one Progress, then Clusters whose sizes differ by at most one; deterministic by seed."""
    order = np.random.default_rng(config.seed).permutation(len(vectors_ND))
    labels_N = (order % config.num_clusters).astype(np.int32)
    means_KD = [vectors_ND[labels_N == cluster].mean(0, dtype=np.float64) for cluster in range(config.num_clusters)]
    centres_KD = np.array(means_KD, dtype=np.float32)
    cost = float(np.square(vectors_ND - centres_KD[labels_N]).sum(1, dtype=np.float64).mean())
    yield Progress(1, 1, "rounds", f"cost {cost:.6g}")
    yield Clusters("random", config.seed, centres_KD, labels_N, (cost,))


def drawn_cluster(text: str, num_clusters: int, seed: int) -> int:
    """The random cluster of a new document, by the hash of its text."""
    digest = hashlib.sha256(f"{seed}:".encode() + text.encode()).digest()
    return int.from_bytes(digest[:8]) % num_clusters
