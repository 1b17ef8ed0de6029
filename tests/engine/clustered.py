"""A tiny real clustering, a tokenizer, and a text whose distances to the centres are stored."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.clusters.artifact import FittedClustering
from engine.clusters.centroids import Clusters
from engine.clusters.config import ClusterConfig, TfidfConfig
from engine.clusters.distances import Distances, GrowingContext, measure_distances, open_distances
from engine.clusters.embedders.tfidf_svd import TfidfEmbedder, fit_tfidf
from engine.clusters.kmeans import find_clusters
from engine.mixing.cluster import Routing
from engine.text.blocks import EvalSample, Tokens
from engine.text.corpus import Document
from engine.text.tokenizer import Tokenizer, train_tokenizer

WORDS = [
    "court held appeal plaintiff statute judge",
    "sugar flour butter oven bake cream",
    "waves harbour gulls sailed tide rocks",
    "kernel thread process memory compile socket",
]
NUM_CLUSTERS = len(WORDS)


def _texts() -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(words.split(), 12)) + "." for words in WORDS for _ in range(6)]


@cache
def tiny_tokenizer() -> Tokenizer:
    return train_tokenizer(_texts(), 300)


@cache
def tiny_clustering() -> FittedClustering:
    """Four clusters; cluster by cluster one of the four sorts of text."""
    *_, embedder = fit_tfidf(_texts(), TfidfConfig(dimension=6, scaling="unit_rows"))
    assert isinstance(embedder, TfidfEmbedder)
    *_, clusters = find_clusters(embedder.embed(_texts()).vectors_ND, ClusterConfig("balanced", NUM_CLUSTERS))
    assert isinstance(clusters, Clusters)
    return FittedClustering(clusters, embedder, tuple(Document(text).id for text in _texts()))


@cache
def tiny_tokens(length: int) -> NDArray[np.uint16]:
    """Documents of all sorts, a beginning token before each, from the middle of the first."""
    draw, ids = np.random.default_rng(1), list[int]()
    while len(ids) < length + 5:
        text = " ".join(draw.choice(WORDS[draw.integers(NUM_CLUSTERS)].split(), draw.integers(2, 9)))
        ids += [tiny_tokenizer().bos_id, *tiny_tokenizer().encode(text)]
    return np.array(ids[5 : length + 5], dtype=np.uint16)


def separate_blocks(ids: NDArray[np.uint16], block_size: int) -> EvalSample:
    """A text in which each block begins a document, so that a gate knows nothing before it."""
    return EvalSample.of(Tokens(ids, np.arange(0, len(ids), block_size)), block_size)


def distances_of(text: EvalSample) -> Distances:
    with tempfile.TemporaryDirectory() as folder:
        for _ in measure_distances(tiny_clustering(), tiny_tokenizer(), text, Path(folder)):
            pass
        stored = open_distances(Path(folder))
        return replace(stored, further_KX=stored.further_KX.clone())  # the file goes


@cache
def tiny_distances(num_tokens: int, block_size: int) -> Distances:
    """Those before every token of that text but the first, each block by itself."""
    return distances_of(separate_blocks(tiny_tokens(num_tokens + 1), block_size))


def tiny_routing(num_experts: int = NUM_CLUSTERS, order: Sequence[int] | None = None) -> Routing:
    """Experts of the clusters in turn, or in another order."""
    clusters = order or [expert % NUM_CLUSTERS for expert in range(num_experts)]
    return Routing(clusters, partial(GrowingContext, tiny_clustering(), tiny_tokenizer()))
