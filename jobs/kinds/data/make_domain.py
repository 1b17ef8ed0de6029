"""Make a domain of documents chosen on the map of a clustering. Each document keeps its split."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from engine.clusters.documents import ClusteredDocuments, load_documents, load_mapped
from engine.clusters.map_polygons import lies_in_any
from engine.clusters.umap_projection import load_map
from engine.errors import CorpusError
from engine.events import Event, Progress
from engine.text.split import store_documents
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.clusters.text import NONE, Splits, read_documents
from jobs.kinds.shared.clusters.text_files import folders_of
from workbench.formatting.number_format import pluralize
from workbench.kinds.data import MakeDomain
from workbench.registry.clusters.clusterings import ClusteringFiles, clustering_files
from workbench.registry.corpora import register_corpus
from workbench.schema.names import ensure_free
from workbench.schema.tables import Corpus, Domain
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact


@dataclass(frozen=True)
class _Chosen:
    spec: MakeDomain
    files: ClusteringFiles
    num_documents: int


def run(work: Work, spec: MakeDomain) -> Generator[Event, None, Register]:
    """Makes one corpus with one domain: the documents in the given areas and clusters."""
    with work.reading() as session:
        ensure_free(session, Corpus, spec.name)
        ensure_free(session, Domain, spec.name)
        files = clustering_files(session, work.storage, spec.clustering)
    yield Progress(0, None, "documents", "listing chosen documents")
    files.kept.check()
    documents = load_documents(files.kept.folder)
    is_chosen_N = _choose(spec, files, documents)
    chosen = _Chosen(spec, files, int(is_chosen_N.sum()))
    artifact_id = stable_id(work.job_id, "documents")
    with work.storage.new(artifact_id) as folder:
        numbers_N = np.where(is_chosen_N, 0, NONE).astype(np.int32)
        selected = read_documents(folders_of(files), documents, numbers_N, {0: spec.name})
        total = int(is_chosen_N.mean() * sum(source.num_bytes for source in files.sources))
        yield from store_documents(selected, folder, total_bytes=total, split_of=Splits(documents))
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return _register(work, chosen, artifact_id, summary)


def _choose(spec: MakeDomain, files: ClusteringFiles, documents: ClusteredDocuments) -> NDArray[np.bool_]:
    """Which documents are chosen. Raises CorpusError if none is, or if areas are given and there is no map."""
    is_chosen_N = np.ones(len(documents), dtype=np.bool_)
    if spec.areas:
        is_chosen_N = _in_areas(spec, files.kept.folder, len(documents))
    if spec.clusters:
        is_chosen_N &= np.isin(documents.labels_N, [files.number(one) for one in spec.clusters])
    if not is_chosen_N.any():
        raise CorpusError("The selection contains no document.", "Draw a larger area on the map.")
    return is_chosen_N


def _in_areas(spec: MakeDomain, folder: Path, num_documents: int) -> NDArray[np.bool_]:
    if not (folder / "map.safetensors").is_file():
        problem = f"“{spec.clustering}” has no map, so areas cannot be used."
        raise CorpusError(problem, "Choose clusters, or cluster again with a map size above 0.")
    is_inside_M = lies_in_any(load_map(folder).coordinates_N2, spec.corners)
    is_chosen_N = np.zeros(num_documents, dtype=np.bool_)
    is_chosen_N[load_mapped(folder).documents_M[is_inside_M]] = True
    return is_chosen_N


def _register(work: Work, chosen: _Chosen, artifact_id: str, summary: dict[str, Any]) -> Register:
    files, name = chosen.files, chosen.spec.name
    licences = sorted({source.licence for source in files.sources} - {""})

    def register(session: Session) -> dict[str, Any]:
        artifact = register_artifact(session, work.storage, artifact_id, artifact_kinds.DOCUMENTS, job_id=work.job_id)
        register_corpus(
            session,
            name=name,
            role="train",
            source=f"chosen in the clustering {files.name}",
            artifact=artifact,
            summary=summary,
            report={"clustering": files.name},
            licence="; ".join(licences),
            job_id=work.job_id,
        )
        counts_by_split = {split: counts["documents"] for split, counts in summary["domains"][0]["splits"].items()}
        held_out = counts_by_split["dev"] + counts_by_split["test"]
        return {
            "domain": name,
            "num_documents": chosen.num_documents,
            "sentence": f"{pluralize(chosen.num_documents, 'document')} in the domain {name}, {held_out:,} held out.",
        }

    return register
