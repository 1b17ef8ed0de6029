"""The documents of a clustering: points of its map, single texts, and changes since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.text.split_names import SPLITS
from workbench.answers.posteriors import ClusteredDocument, TextChanges
from workbench.errors import StorageError
from workbench.kinds.data import MakeDomain
from workbench.registry.clusters.clusterings import clustering_files, clustering_row
from workbench.registry.corpora import domain_row
from workbench.registry.experts import domains_of
from workbench.registry.mixtures import members_of
from workbench.schema.job_tables import Job
from workbench.schema.tables import Corpus, Domain, Expert
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from engine.clusters.documents import Ids


POINT = np.dtype([("document", "<u4"), ("cluster", "<i4"), ("source", "<i4"), ("x", "<f4"), ("y", "<f4")])  # 20 bytes
LISTED = 20  # ids of documents in an answer; all are counted


PASSAGES, PASSAGE_CHARACTERS = 20, 120  # of a search


@dataclass(frozen=True)
class DocumentMatches:
    """The documents that a search matched, by their index, with a passage of each of the first."""

    numbers: NDArray[np.int64]
    passages: dict[int, str]


@dataclass(frozen=True)
class MapPoints:
    """A map as bytes: `num_points` records of POINT; the map was fitted on `num_fitted` of them."""

    num_points: int
    num_fitted: int
    seed: int
    points: bytes


def map_points(session: Session, storage: Storage, name: str) -> MapPoints:
    """The map of a clustering; raises StorageError when none was drawn."""
    from engine.clusters.documents import load_documents, load_mapped
    from engine.clusters.umap_projection import load_map  # here, because only maps need it

    folder = storage.path(clustering_row(session, name).artifact_id)
    if not (folder / "map.safetensors").is_file():
        next_step = "Cluster again with more documents, and a map size above 0."
        raise StorageError(f"“{name}” has no map.", next_step)
    chart, documents, numbers = load_map(folder), load_documents(folder), load_mapped(folder).documents_M
    points = np.empty(len(numbers), dtype=POINT)
    points["document"], points["cluster"] = numbers, documents.labels_N[numbers]
    points["source"] = documents.sources_N[numbers]
    points["x"], points["y"] = chart.coordinates_N2.T
    return MapPoints(len(numbers), int(chart.is_fitted_N.sum()), chart.seed, points.tobytes())


@dataclass(frozen=True)
class MapRegion:
    """Areas of a map, each as corners, of which a domain was made, and the newest expert that was trained on it."""

    domain: str
    expert: str | None
    areas: list[list[tuple[float, float]]]


def map_regions(session: Session, name: str) -> list[MapRegion]:
    """The regions of a clustering's map, by the name of their domain."""
    query = (
        select(Domain.name, Expert.name, Job.spec)
        .join(Corpus, Domain.corpus_id == Corpus.id)
        .join(Job, Corpus.job_id == Job.id)
        .outerjoin(Expert, Expert.domain_id == Domain.id)
        .order_by(Domain.name, Expert.created_at)
    )
    regions = {}
    for domain, expert, stored in session.execute(query).tuples():
        if stored.get("clustering") == name and stored.get("areas"):
            regions[domain] = MapRegion(domain, expert, MakeDomain.model_validate(stored).corners)
    return list(regions.values())


def get_document(session: Session, storage: Storage, name: str, document: int | str) -> ClusteredDocument:
    """One document of a clustering by its index (as on the map) or id.

    Raises CorpusError for an unknown one.
    """
    from engine.clusters.documents import (
        find_document,  # here, because only texts need Arrow
        load_documents,
    )
    from engine.errors import CorpusError

    files = clustering_files(session, storage, name)
    documents = load_documents(files.kept.folder)
    if isinstance(document, str):
        number = int(documents.numbers([document])[0])
    elif 0 <= document < len(documents):
        number = document
    else:
        raise CorpusError(
            f"There is no document {document}: the clustering has {len(documents)}.", "Choose one on the map."
        )
    source = files.sources[documents.sources_N[number]]
    id, split = documents.id(number), documents.split(number)
    result = source.kept and find_document(source.kept.folder / source.folder, split, id)
    if not result:
        raise CorpusError(f"The document {id[:12]} is missing from “{source.name}”.", "Import it again.")
    flags = {flag: bool(getattr(documents, f"{flag}_N")[number]) for flag in ("is_fitted", "is_pinned", "is_blank")}
    cluster = int(documents.labels_N[number])
    return ClusteredDocument(
        id=id, text=result.text, source=result.origin, domain=source.name, split=split, cluster=cluster, **flags
    )


def search_documents(session: Session, storage: Storage, name: str, words: Sequence[str]) -> DocumentMatches:
    """The documents of a clustering whose text holds all these words, by their index; of the first also a passage.

    Documents that were cut only for clustering have no text of their own, and are not searched.
    """
    from engine.clusters.documents import as_ids, load_documents, places_of
    from engine.text.parquet_rows import read_matching

    files = clustering_files(session, storage, name)
    documents = load_documents(files.kept.folder)
    matched, passages = list[str](), dict[str, str]()
    for source in files.sources:
        for split in SPLITS if source.kept else ():
            path = source.kept.folder / source.folder / f"{split}.parquet"  # type: ignore[union-attr]
            for id, text in read_matching(path, words):
                matched.append(id)
                if len(passages) < PASSAGES:
                    passages[id] = _passage(text, words[0])
    ids = list(dict.fromkeys(matched))
    places = places_of(as_ids(ids), documents.ids_N).tolist()
    known = {id: place for id, place in zip(ids, places, strict=True) if place >= 0}
    return DocumentMatches(
        numbers=np.array(sorted(known.values()), dtype=np.int64),
        passages={known[id]: passage for id, passage in passages.items() if id in known},
    )


def _passage(text: str, word: str) -> str:
    """Some words around the first place of a word."""
    at = max(text.lower().find(word.lower()), 0)
    start = max(0, at - PASSAGE_CHARACTERS // 3)
    passage = " ".join(text[start : start + PASSAGE_CHARACTERS].split())
    return f"{'… ' if start else ''}{passage}{' …' if start + PASSAGE_CHARACTERS < len(text) else ''}"


def changes(session: Session, storage: Storage, name: str, domains: Sequence[str] = ()) -> TextChanges:
    """Differences between the clustered text and that of these domains (or of domains with the sources' names).

    A deleted source has no documents.
    """
    from engine.clusters.documents import document_ids, ids_when_cut, load_documents

    row = clustering_row(session, name)
    known = load_documents(storage.path(row.artifact_id))
    present = select(Domain).where(Domain.name.in_([source["name"] for source in row.sources]))
    named = [domain_row(session, domain) for domain in domains] or session.scalars(present).all()
    folders = [storage.path(domain.artifact_id) / domain.folder for domain in named]
    length = next((source["piece_length"] for source in row.sources if source.get("piece_length")), None)
    difference = known.changes(ids_when_cut(folders, length) if length else document_ids(folders, SPLITS))
    return TextChanges(
        num_missing=len(difference.missing),
        num_new=len(difference.new),
        missing=list(difference.missing[:LISTED]),
        new=list(difference.new[:LISTED]),
    )


Shares = dict[str, float]  # of a cluster's documents, by the name of the expert that was trained on them


@dataclass(frozen=True)
class ParentCandidates:
    """The folders of a clustering and of the training domains of each expert of a mixture, in its order."""

    clustering: Path
    domains: dict[str, list[Path]]  # by the expert's name


def parent_candidates(session: Session, storage: Storage, clustering: str, mixture: str) -> ParentCandidates:
    """The folders to compare a clustering's documents with the experts of a mixture; raises NotFoundError."""
    experts, _ = members_of(session, mixture)
    folders = {expert.name: domain_folders(session, storage, expert) for expert in experts}
    return ParentCandidates(storage.path(clustering_row(session, clustering).artifact_id), folders)


def domain_folders(session: Session, storage: Storage, expert: Expert) -> list[Path]:
    """The document folders of an expert's training domains, without deleted ones."""
    rows = session.scalars(select(Domain).where(Domain.name.in_(domains_of(expert))))
    return [storage.path(row.artifact_id) / row.folder for row in rows]


def shared_documents(candidates: ParentCandidates) -> dict[int, Shares]:
    """The share of each cluster's documents that each expert was trained on, by content hash, by cluster number.

    Held-out documents also count: a cluster's domain has all of its documents. Clusters without documents are left out.
    """
    import numpy as np

    from engine.clusters.documents import load_documents, places_of

    documents = load_documents(candidates.clustering)
    sizes = np.bincount(documents.labels_N)
    shares: dict[int, Shares] = {int(number): {} for number in np.flatnonzero(sizes)}
    for expert, folders in candidates.domains.items():
        is_known_N = places_of(documents.ids_N, _ids(folders)) >= 0
        counts = np.bincount(documents.labels_N[is_known_N], minlength=len(sizes))
        for number, of_expert in shares.items():
            of_expert[expert] = float(counts[number] / sizes[number])
    return shares


def share_of(domain: Path, folders: Sequence[Path]) -> float:
    """The share of a domain's documents that are in other domains."""
    from engine.clusters.documents import places_of

    own = _ids([domain])
    return float((places_of(own, _ids(folders)) >= 0).mean()) if len(own) else 0.0


def best_parent(shares: Mapping[str, float]) -> str | None:
    """The expert with the largest share, the first of equal ones; None if all shares are 0."""
    expert = max(shares, key=shares.__getitem__, default=None)
    return expert if expert is not None and shares[expert] > 0 else None


def _ids(folders: Iterable[Path]) -> Ids:
    from engine.clusters.documents import document_ids

    return document_ids(list(folders), SPLITS)
