"""What an area of a map holds: its terms and passages, who reads it and how well, and what an expert of it may gain.

Shapes: N documents of a clustering, S selected ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.analysis.scores import document_losses, experts_with_scores
from workbench.registry.clusters.cluster_documents import get_document
from workbench.registry.clusters.clusterings import clustering_files, clustering_row
from workbench.schema.job_tables import Job
from workbench.schema.tables import Expert
from workbench.store.storage import Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.statistics.estimates import Interval

READ, PASSAGES, CHARACTERS = 60, 3, 220  # documents read for the terms; passages shown, and their length
FEWEST = 2  # documents with a loss, for an interval


@dataclass(frozen=True)
class SelectionText:
    """The terms of a selection, from `num_read` of its documents, and the texts nearest to their mean."""

    num_read: int
    terms: list[str]
    passages: list[str]


@dataclass(frozen=True)
class Reading:
    """The mean loss of an expert over the scored documents of a selection (nats/token)."""

    expert: str
    num_documents: int
    loss: Interval


@dataclass(frozen=True)
class MeasuredCost:
    """The last finished training of one of these experts: what it trained, and how long that took."""

    title: str
    seconds: float


@dataclass(frozen=True)
class SelectionReadings:
    """The readings of a selection, the best first; what experts gained on their own domain; what a training cost.

    `gains`: by expert, the least loss of any other on the documents of its own domain, less its own.
    """

    readings: list[Reading]
    gains: dict[str, float]
    cost: MeasuredCost | None


def describe_selection(
    session: Session, storage: Storage, clustering: str, numbers_S: NDArray[np.int64]
) -> SelectionText:
    """Reads a sample of the selected documents; raises CorpusError where one is missing."""
    import numpy as np

    from engine.clusters.embedders.tfidf_svd import load_tfidf, top_terms

    folder = clustering_files(session, storage, clustering).kept.folder
    drawn = np.random.default_rng(0).permutation(numbers_S)[:READ].tolist()
    texts = [get_document(session, storage, clustering, number).text for number in drawn]
    words = load_tfidf(_words_folder(folder))
    vectors_SD = words.embed(texts).vectors_ND
    mean_D = vectors_SD.mean(0)
    nearest = np.argsort(np.square(vectors_SD - mean_D).sum(1), kind="stable")[:PASSAGES]
    passages = [" ".join(texts[number].split())[:CHARACTERS] for number in nearest.tolist()]
    return SelectionText(len(texts), top_terms(words, mean_D[None], 8)[0], passages)


def _words_folder(folder: Path) -> Path:
    """The embedder by words of a clustering, which a seed model's hidden states have next to their own."""
    return folder / "words" if (folder / "words").is_dir() else folder / "embedder"


def read_selection(
    session: Session, storage: Storage, clustering: str, numbers_S: NDArray[np.int64]
) -> SelectionReadings:
    """What stored scores say of the selected documents; nothing is computed by a model."""
    from engine.clusters.documents import load_documents

    row = clustering_row(session, clustering)
    names = experts_with_scores(session, [source["name"] for source in row.sources])
    losses = {name: document_losses(session, storage, clustering, name) for name in names}
    documents = load_documents(storage.path(row.artifact_id))
    domains = dict(session.execute(select(Expert.name, Expert.domain_id).where(Expert.name.in_(names))).tuples().all())
    ids = {source["id"]: number for number, source in enumerate(row.sources)}
    own = {name: documents.sources_N == ids[domain] for name, domain in domains.items() if domain in ids}
    return SelectionReadings(readings_of(losses, numbers_S), gains_of(losses, own), _cost(session, names))


def readings_of(losses: Mapping[str, NDArray[np.float32]], numbers_S: NDArray[np.int64]) -> list[Reading]:
    """The mean loss of each expert over the documents that all of them were scored on; those without are left out."""
    import numpy as np

    from engine.statistics.estimates import student_mean

    scored = {name: losses_N[numbers_S] for name, losses_N in losses.items()}
    scored = {name: values_S for name, values_S in scored.items() if np.isfinite(values_S).sum() >= FEWEST}
    if not scored:
        return []
    is_shared_S = np.logical_and.reduce([np.isfinite(values_S) for values_S in scored.values()])
    if is_shared_S.sum() < FEWEST:
        return []
    readings = [
        Reading(name, int(is_shared_S.sum()), student_mean(values_S[is_shared_S].tolist()))
        for name, values_S in scored.items()
    ]
    return sorted(readings, key=lambda one: one.loss.mean)


def gains_of(losses: Mapping[str, NDArray[np.float32]], own: Mapping[str, NDArray[np.bool_]]) -> dict[str, float]:
    """How much lower the loss of each expert is on its own domain than the best of the others' there."""
    import numpy as np

    gains = {}
    for name, is_own_N in own.items():
        is_scored_N = is_own_N & np.isfinite(losses[name])
        means = {
            other: float(values_N[shared_N].mean())
            for other, values_N in losses.items()
            if other != name and (shared_N := is_scored_N & np.isfinite(values_N)).sum() == is_scored_N.sum() > 0
        }
        if means:
            gains[name] = min(means.values()) - float(losses[name][is_scored_N].mean())
    return gains


def _cost(session: Session, names: Sequence[str]) -> MeasuredCost | None:
    query = select(Job).join(Expert, Expert.job_id == Job.id).where(Expert.name.in_(names), Job.state == "done")
    job = session.scalars(query.order_by(Job.finished_at.desc()).limit(1)).first()
    if job is None or job.started_at is None or job.finished_at is None:
        return None
    return MeasuredCost(job.title, job.finished_at - job.started_at)
