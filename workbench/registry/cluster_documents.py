"""The documents of a clustering: points of its map, a text on request, what changed since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.answers.documents import ClusteredDocument, TextChanges
from workbench.errors import StorageError
from workbench.registry.clusterings import clustering_files, clustering_row
from workbench.registry.corpora import domain_row
from workbench.registry.tables import Domain
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from engine.clusters.documents import ClusteredDocuments

POINT = np.dtype([("document", "<u4"), ("cluster", "<i4"), ("source", "<i4"), ("x", "<f4"), ("y", "<f4")])  # 20 bytes
LISTED = 20  # ids of documents in an answer; all are counted


@dataclass(frozen=True)
class MapPoints:
    """A map as bytes: `num_points` records of POINT. `num_fitted` of them shaped it, the rest were put in between."""

    num_points: int
    num_fitted: int
    seed: int
    points: bytes


def map_points(session: Session, storage: Storage, name: str) -> MapPoints:
    """The map of a clustering; raises StorageError when none was drawn."""
    from engine.clusters.umap_projection import load_map  # here, because only maps need it

    folder = _folder(session, storage, name)
    if not (folder / "map.safetensors").is_file():
        next_step = "Cluster again with more documents, and a map size above 0."
        raise StorageError(f"“{name}” must have a map, but none was drawn.", next_step)
    chart, documents = load_map(folder), _documents(folder)
    numbers = _mapped(folder)
    found = np.empty(len(numbers), dtype=POINT)
    found["document"], found["cluster"] = numbers, documents.labels_N[numbers]
    found["source"] = documents.sources_N[numbers]
    found["x"], found["y"] = chart.coordinates_N2.T
    return MapPoints(len(numbers), int(chart.is_fitted_N.sum()), chart.seed, found.tobytes())


def get_document(session: Session, storage: Storage, name: str, document: int | str) -> ClusteredDocument:
    """One document of a clustering by its number (as on the map) or id.

    Raises CorpusError for one that is not there.
    """
    from engine.clusters.sources import find_document  # here, because only texts need Arrow
    from engine.errors import CorpusError

    files = clustering_files(session, storage, name)
    documents = _documents(files.kept.folder)
    if isinstance(document, str):
        number = int(documents.numbers([document])[0])
    elif 0 <= document < len(documents):
        number = document
    else:
        raise CorpusError(f"A document's number must be below {len(documents)}, but is {document}.", "Look at the map.")
    source = files.sources[documents.sources_N[number]]
    id, split = documents.id(number), documents.split(number)
    found = source.kept and find_document(source.kept.folder / source.folder, split, id)
    if not found:
        raise CorpusError(f"The document {id[:12]} must be in “{source.name}”, but is missing.", "Import it again.")
    flags = {flag: bool(getattr(documents, f"{flag}_N")[number]) for flag in ("is_fitted", "is_pinned", "is_blank")}
    cluster = int(documents.labels_N[number])
    return ClusteredDocument(
        id=id, text=found.text, source=found.origin, domain=source.name, split=split, cluster=cluster, **flags
    )


def changes(session: Session, storage: Storage, name: str, domains: Sequence[str] = ()) -> TextChanges:
    """How text differs from what was clustered: that of these domains, or of those now called as the sources are.

    A source that is gone has no documents.
    """
    from engine.clusters.sources import document_ids
    from engine.text.split import SPLITS

    row = clustering_row(session, name)
    known = _documents(storage.path(row.artifact_id))
    named = [domain_row(session, one) for one in domains] or _present(session, [one["name"] for one in row.sources])
    folders = [storage.path(one.artifact_id) / one.folder for one in named]
    found = known.changes(document_ids(folders, SPLITS))
    return TextChanges(
        num_missing=len(found.missing),
        num_new=len(found.new),
        missing=list(found.missing[:LISTED]),
        new=list(found.new[:LISTED]),
    )


def _present(session: Session, names: Sequence[str]) -> list[Domain]:
    return list(session.scalars(select(Domain).where(Domain.name.in_(names))))


def _folder(session: Session, storage: Storage, name: str) -> Path:
    return storage.path(clustering_row(session, name).artifact_id)


def _documents(folder: Path) -> ClusteredDocuments:
    from engine.clusters.documents import load_documents

    return load_documents(folder)


def _mapped(folder: Path) -> Any:
    from engine.clusters.documents import load_mapped

    return load_mapped(folder).documents_M
