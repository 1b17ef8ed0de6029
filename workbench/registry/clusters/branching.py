"""Chooses the parent of a cluster's model in a second iteration: the expert trained on most of its documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.text.split_names import SPLITS
from workbench.registry.clusters.clusterings import clustering_row
from workbench.registry.experts import domains_of
from workbench.registry.mixtures import members_of
from workbench.schema.tables import Domain, Expert
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from engine.clusters.documents import Ids

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
