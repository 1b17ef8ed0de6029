"""A clustering as a job would leave it, of any size, with texts of its own; only the fitted files are missing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.clusters.documents import ClusteredDocuments, Mapped, as_ids
from engine.clusters.fitting import label_overlap
from engine.clusters.umap_projection import Map
from engine.text.corpus import Document
from engine.text.split import read_split, store_documents
from engine.text.split_names import SPLITS
from workbench.answers.cards import ClusteringCard
from workbench.registry.clusters.clusterings import ClusterFacts, register_clustering
from workbench.registry.corpora import domain_row, register_corpus
from workbench.schema.base import new_id
from workbench.store.artifacts import register_artifact
from workbench.store.storage import Storage

SOURCES = ("letters", "<i>papers</i>", "speeches")
WORDS = ("amber", "birch", "cedar", "delta", "ember", "frost", "grove", "haven", "ivory", "jade", "kite", "lemon")


def fill_clustering(
    session: Session,
    storage: Storage,
    *,
    name: str = "topics",
    num_documents: int = 600,
    num_clusters: int = 4,
    num_fitted: int = 200,
    with_map: bool = True,
    seed: int = 0,
) -> ClusteringCard:
    """Registers three domains and a clustering of them; the map is a heap of points for each cluster."""
    _import(session, storage, num_documents, num_clusters)
    documents = _documents(session, storage, num_clusters)
    id = new_id()
    with storage.new(id) as folder:
        documents.save(folder)
        if with_map:
            _draw(documents, num_clusters, num_fitted, seed).save(folder)
            numbers = np.arange(len(documents), dtype=np.int32)
            Mapped(numbers, np.empty((len(documents), 0), dtype=np.float32)).save(folder)
    labels = [SOURCES[number] for number in documents.sources_N.tolist()]
    overlap = label_overlap(documents.labels_N, labels, num_clusters)
    metrics: dict[str, Any] = {
        "sizes": documents.sizes(num_clusters),
        "num_blank": 2,
        "num_pinned": 0,
        "costs": [3.0, 2.0],
        "num_duplicates": 5,
        "overlap": {
            "labels": list(overlap.labels),
            "counts": overlap.counts_LK.tolist(),
            "normalised_mutual_information": overlap.normalised_mutual_information,
        },
        "map": {"num_points": len(documents), "num_fitted": num_fitted, "seed": seed} if with_map else None,
    }
    rows = [domain_row(session, source) for source in SOURCES]
    return register_clustering(
        session,
        id=new_id(),
        name=name,
        num_fitted=num_fitted,
        metrics=metrics,
        config={
            "clusters": {"method": "balanced", "num_clusters": num_clusters, "max_iterations": 20, "seed": seed},
            "embedder": {"kind": "tfidf", "sha256": "ab" * 32, "words": {"scaling": "standardise"}, "max_tokens": 512},
        },
        sources=[{"id": row.id, "name": row.name, "data_sha256": row.data_sha256} for row in rows],
        clusters=[
            ClusterFacts(size, [WORDS[number % len(WORDS)] + sign for sign in "abcdefghij"], documents.nearest(number))
            for number, size in enumerate(documents.sizes(num_clusters))
        ],
        artifact=register_artifact(session, storage, id, "clustering"),
    )


def _import(session: Session, storage: Storage, num_documents: int, num_clusters: int) -> None:
    id = new_id()
    with storage.new(id) as folder:
        for _ in store_documents(_texts(num_documents, num_clusters), folder):
            pass
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    artifact = register_artifact(session, storage, id, "corpus")
    register_corpus(
        session,
        name="three kinds",
        role="train",
        source="/data/three.jsonl",
        artifact=artifact,
        summary=summary,
        report={"num_documents": num_documents, "num_duplicates": 0, "num_refused": 0, "refused": []},
        licence="CC0",
    )


def _texts(num_documents: int, num_clusters: int) -> Iterator[Document]:
    """Each cluster's documents begin with its number; a source holds more of some clusters than of others."""
    draw = random.Random(0)
    for number in range(num_documents):
        cluster = number % num_clusters
        source = SOURCES[cluster % 3] if draw.random() < 0.7 else draw.choice(SOURCES)
        yield Document(
            f"{cluster} {number}: {' '.join(draw.choices(WORDS, k=12))}.", source, None, f"three.jsonl:{number}"
        )


def _documents(session: Session, storage: Storage, num_clusters: int) -> ClusteredDocuments:
    result = []
    for source, name in enumerate(SOURCES):
        row = domain_row(session, name)
        folder = storage.path(row.artifact_id) / row.folder
        for split, split_name in enumerate(SPLITS):
            result += [
                (one["id"], int(one["text"].split()[0]), split, source) for one in read_split(folder, split_name)
            ]
    result.sort()
    ids, labels, splits, sources = zip(*result, strict=True)
    nothing = np.zeros(len(ids), dtype=np.bool_)
    return ClusteredDocuments(
        as_ids(ids),
        np.array(labels, np.int32),
        np.array(splits, np.uint8),
        np.array(sources, np.int32),
        np.linspace(0, 1, len(ids), dtype=np.float32),
        nothing,
        nothing,
        nothing,
    )


def _draw(documents: ClusteredDocuments, num_clusters: int, num_fitted: int, seed: int) -> Map:
    draw = np.random.default_rng(seed)
    angles = 2 * np.pi * np.arange(num_clusters) / num_clusters
    centres_K2 = (8 * np.stack([np.cos(angles), np.sin(angles)], 1)).astype(np.float32)
    noise = draw.normal(0, 1, (len(documents), 2)).astype(np.float32)
    return Map(centres_K2[documents.labels_N] + noise, np.arange(len(documents)) < num_fitted, seed)
