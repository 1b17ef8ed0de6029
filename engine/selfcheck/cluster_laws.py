"""Laws of clusters and cluster gates: balance, seeds and growing texts.

Shapes: E experts, N documents, T positions, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from engine.clusters.centroids import Clusters, Floats, squared_distances
from engine.clusters.config import ClusterConfig, ClusterMethod
from engine.clusters.kmeans import find_clusters
from engine.mixing.base import Stream
from engine.mixing.cluster import ClusterGate
from engine.mixing.gates.cluster import ClusterGateConfig
from engine.selfcheck.law import LawFinding, gap
from engine.selfcheck.test_bed import EVEN, KEYS, SOFT, TestBed

SIZES = ((97, 8), (64, 7), (100, 3))  # documents and clusters


def incremental_is_from_scratch(bed: TestBed) -> Iterator[LawFinding]:
    """L10, after every token, by both powers of the distance; the control knows only the newest piece of text."""
    spoken = bed.tokenizer.stream()
    pieces = [spoken.push(token) for token in bed.array.tolist()]
    wholes = ["".join(pieces[: position + 1]) for position in range(len(pieces))]
    for power in (2, 4):
        config = ClusterGateConfig(temperature=SOFT ** (power / 2), distance_power=power)
        gate = bed.gate(config, EVEN)
        assert isinstance(gate, ClusterGate)
        grown_ET = _grow(bed.stream(gate), bed.array.tolist())
        full_ET, newest_ET = (_from_scratch(bed, gate, texts) for texts in (wholes, pieces))
        yield LawFinding(gap(grown_ET, full_ET), gap(grown_ET, newest_ET))


def _grow(stream: Stream, ids: Sequence[int]) -> Tensor:
    """The weights [E, T] after each token of a text whose first token the stream has seen."""
    weights = [stream.log_weights().exp()]
    for token in ids[1:]:
        stream.observe(torch.zeros(len(KEYS)), token)
        weights.append(stream.log_weights().exp())
    return torch.stack(weights, 1)


def _from_scratch(bed: TestBed, gate: ClusterGate, texts: Sequence[str]) -> Tensor:
    """The weights [E, T] of texts that are embedded separately and in full."""
    clustering = bed.clustering
    vectors_TD = np.concatenate([clustering.embedder.embed([text]).vectors_ND for text in texts])
    squared_TE = squared_distances(vectors_TD, clustering.clusters.centres_KD)
    return gate.log_weights_of(torch.from_numpy(squared_TE.T)).exp()


def balanced_and_seeded(_bed: TestBed) -> Iterator[LawFinding]:
    """L11: size differences beyond one document, and documents that the same seed assigns differently.

    The controls are k-means without the constraint, and another seed.
    """
    for num_documents, num_clusters in SIZES:
        vectors_ND = np.random.default_rng(5).gamma(0.5, 1, (num_documents, 4)).astype(np.float32)  # far from even
        first, second, other = (_clusters(vectors_ND, "balanced", num_clusters, seed) for seed in (0, 0, 1))
        free = _clusters(vectors_ND, "unbalanced", num_clusters, 0)
        yield LawFinding(_unevenness(first), _unevenness(free))
        yield LawFinding(_num_elsewhere(first, second), _num_elsewhere(first, other))


def _clusters(vectors_ND: Floats, method: ClusterMethod, num_clusters: int, seed: int) -> Clusters:
    *_, clusters = find_clusters(vectors_ND, ClusterConfig(method, num_clusters, seed=seed))
    assert isinstance(clusters, Clusters)
    return clusters


def _unevenness(clusters: Clusters) -> int:
    return max(0, max(clusters.sizes) - min(clusters.sizes) - 1)


def _num_elsewhere(first: Clusters, second: Clusters) -> int:
    return int((first.labels_N != second.labels_N).sum())
