"""Make a domain of documents chosen on the map of a clustering. Each document keeps its split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from engine.clusters.documents import ClusteredDocuments, load_documents, load_mapped
from engine.clusters.map_polygons import lies_in_any
from engine.clusters.umap_projection import load_map
from engine.errors import CorpusError
from engine.events import Progress
from jobs.attempt.work import Run, Work
from jobs.kinds.shared.clustered_text import NONE, store_chosen
from workbench.formatting.number_format import pluralize
from workbench.kinds.data.make_domain import MakeDomain
from workbench.registry.clusters.clusterings import ClusteringFiles, clustering_files
from workbench.schema.names import ensure_free
from workbench.schema.tables import Domain


def run(work: Work, spec: MakeDomain) -> Run:
    """Makes one corpus with one domain: the documents in the given areas and clusters."""
    with work.reading() as session:
        ensure_free(session, Domain, "domain", spec.name)
        files = clustering_files(session, work.storage, spec.clustering)
    yield Progress(0, None, "documents", "listing chosen documents")
    files.kept.check()
    documents = load_documents(files.kept.folder)
    is_chosen_N = _choose(spec, files, documents)
    numbers_N = np.where(is_chosen_N, 0, NONE).astype(np.int32)
    chosen = yield from store_chosen(work, files, documents, numbers_N, {0: spec.name})
    counts = {split: counts["documents"] for split, counts in chosen.summary["domains"][0]["splits"].items()}
    num_documents, held_out = int(is_chosen_N.sum()), counts["dev"] + counts["test"]

    def register(session: Session) -> dict[str, Any]:
        chosen.register(session, work, name=spec.name, source=f"chosen in the clustering {files.name}")
        return {
            "domain": spec.name,
            "num_documents": num_documents,
            "sentence": f"{pluralize(num_documents, 'document')} in the domain {spec.name}, {held_out:,} held out.",
        }

    return register


def _choose(spec: MakeDomain, files: ClusteringFiles, documents: ClusteredDocuments) -> NDArray[np.bool_]:
    """Which documents are chosen. Raises CorpusError where none is, and for areas in a clustering without a map."""
    is_chosen_N = np.ones(len(documents), dtype=np.bool_)
    if spec.areas:
        is_chosen_N = _in_areas(spec, files.kept.folder, len(documents))
    if spec.clusters:
        is_chosen_N &= np.isin(documents.labels_N, [files.number(cluster) for cluster in spec.clusters])
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
