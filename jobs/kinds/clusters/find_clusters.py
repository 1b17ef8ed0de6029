"""Find clusters, assign every document to one, compute the map and describe the clusters (C-BTM §2.1)."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.clusters.artifact import load_clustering
from engine.clusters.documents import ClusteredDocuments, Mapped, join
from engine.clusters.fitting import Fitted, load_facts, words_of
from engine.clusters.umap_projection import FEWEST, Map, project
from engine.events import Event, forward_progress
from engine.files import MANIFEST
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.clusters.cluster_part import Inputs, fitted, forget_parts, open_part, placed, read_inputs, with_pieces
from jobs.kinds.shared.clusters.description import facts, measures
from jobs.kinds.shared.tokens import DomainFiles
from workbench.formatting.clustering_warnings import clustering_warnings, unequal_lengths
from workbench.formatting.number_format import pluralize
from workbench.kinds.clusters import FindClusters
from workbench.registry.clusters.clusterings import register_clustering
from workbench.schema.names import ensure_free
from workbench.schema.tables import Clustering
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact


def run(work: Work, spec: FindClusters) -> Generator[Event, None, Register]:
    """Runs the steps that no other job has run, and joins their results in one folder."""
    with work.reading() as session:
        ensure_free(session, Clustering, spec.name)
        inputs = read_inputs(session, work, spec)
    inputs = yield from with_pieces(work, inputs)
    fit_folder = yield from fitted(work, inputs)
    folders = []
    for shard in range(inputs.num_shards):
        folders.append((yield from placed(work, inputs, shard)))
    documents, mapped = join([open_part(folder) for folder in folders])
    chart = yield from _draw(mapped, spec)
    artifact_id = stable_id(work.job_id, "clustering")
    with work.storage.new(artifact_id) as folder:
        shutil.copytree(fit_folder, folder, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)
        documents.save(folder)
        if chart:
            chart.save(folder)
            mapped.without_vectors().save(folder)
    return _register(work, inputs, fit_folder, artifact_id, documents, chart)


def _draw(mapped: Mapped, spec: FindClusters) -> Generator[Event, None, Map | None]:
    """The map; None if it was not requested or there are too few documents."""
    if len(mapped.documents_M) < FEWEST:
        return None
    return (yield from forward_progress(project(mapped.vectors_MD, seed=spec.seed)))


def _register(
    work: Work, inputs: Inputs, fit_folder: Path, artifact_id: str, documents: ClusteredDocuments, chart: Map | None
) -> Register:
    spec = inputs.spec
    clustering = load_clustering(fit_folder, inputs.seed)
    clusters = facts(Fitted(clustering, words_of(clustering, fit_folder)), documents)
    metrics = {
        **measures(documents, spec.num_clusters, [domain.name for domain in inputs.domains]),
        **asdict(load_facts(fit_folder)),
        "costs": list(clustering.clusters.costs),
        "num_duplicates": inputs.num_documents - len(documents),
        "map": chart
        and {
            "num_points": len(chart.coordinates_N2),
            "num_fitted": int(chart.is_fitted_N.sum()),
            "seed": chart.seed,
        },
    }
    embedder = {"kind": spec.embedder, "sha256": clustering.embedder.sha256, "words": asdict(spec.words)}
    sources = [_source(one, spec.piece_length) for one in inputs.domains]
    config = {"clusters": asdict(spec.clusters), "embedder": {**embedder, "max_tokens": spec.max_tokens}}

    def register(session: Session) -> dict[str, Any]:
        artifact = register_artifact(session, work.storage, artifact_id, artifact_kinds.CLUSTERING, job_id=work.job_id)
        card = register_clustering(
            session,
            id=stable_id(work.job_id, "row"),
            name=spec.name,
            config=config,
            metrics=metrics,
            clusters=clusters,
            sources=sources,
            num_fitted=len(clustering.document_ids),
            artifact=artifact,
            seed_id=inputs.seed_id,
            job_id=work.job_id,
        )
        forget_parts(session, inputs)
        return _result(card.name, metrics, len(documents), spec.piece_length)

    return register


def _source(domain: DomainFiles, piece_length: int | None) -> dict[str, Any]:
    """A source domain as the registry stores it, with the length to which its documents were cut."""
    cut = {"piece_length": piece_length} if piece_length and not domain.is_chat else {}
    return {"id": domain.id, "name": domain.name, "data_sha256": domain.data_sha256, **cut}


def _result(name: str, metrics: dict[str, Any], num_documents: int, piece_length: int | None) -> dict[str, Any]:
    sizes, blank = metrics["sizes"], metrics["num_blank"]
    span = f" of {min(sizes):,} to {max(sizes):,}" if len(sizes) > 1 else ""
    sentence = f"{pluralize(num_documents, 'document')} in {pluralize(len(sizes), 'cluster')}{span}."
    if blank:
        sentence += f" {blank:,} of them contain no known word and share one position."
    if metrics["num_duplicates"]:
        sentence += f" {metrics['num_duplicates']:,} that are in several domains count once."
    if piece_length:
        sentence += f" Longer ones were cut into pieces of at most {piece_length:,} characters."
    sentence = " ".join([sentence, *clustering_warnings(metrics)])
    return {
        "clustering": name,
        "num_documents": num_documents,
        "num_blank": blank,
        "sizes": sizes,
        "sentence": sentence,
        "lengths": " ".join([_bytes_words(metrics["num_bytes"]), *unequal_lengths(metrics)]),
    }


def _bytes_words(num_bytes: list[int]) -> str:
    least, most = min(num_bytes), max(num_bytes)
    return f"A cluster has {least:,} to {most:,} bytes of text." if least < most else f"A cluster has {most:,} bytes."
