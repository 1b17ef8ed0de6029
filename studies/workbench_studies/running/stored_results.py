"""The registry data of a replication: stored scores, training curves and overlaps of its domains."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from engine.files import ArtifactRef
from workbench.answers.cards import ReportCard
from workbench.job_records import jobs
from workbench.registry.clusters.cluster_routing import distances_key, find_distances
from workbench.registry.reports import list_reports
from workbench.schema.tables import Clustering, Domain, Evaluation, Expert, SeedModel
from workbench.store.storage import Storage
from workbench_studies.core.measurements import ScoreKey, Stored
from workbench_studies.core.sizes import Size
from workbench_studies.demix.measurements import Overlap
from workbench_studies.papers.todays_rule import in_todays_words

REPORT = "replication"  # the kind of its reports
_TERMS = 5  # as many as tables 2 to 7 of C-BTM print
HELD_OUT = "dev_loss/"  # what a training's curve of a domain's held-out loss is called


def stored_scores(
    session: Session, storage: Storage, size: Size, domains: Sequence[str], job_ids: Collection[str]
) -> dict[ScoreKey, Stored]:
    """The scores on these domains of the experts that these jobs made, of the most tokens that the size asks for.

    Its name alone does not make an expert one of the replication's: another may have been trained under it.
    Nothing is hashed here: a transaction must be short.
    """
    most = {"test": size.test_tokens, "dev": size.dev_tokens}
    query = (
        select(Expert.name, Domain.name, Evaluation)
        .join(Evaluation.expert)
        .join(Evaluation.domain)
        .options(joinedload(Evaluation.artifact))
        .where(Domain.name.in_(domains), Evaluation.block_size == size.block_size)
        .where(Expert.job_id.in_(job_ids))
        .order_by(Evaluation.num_tokens, Expert.name, Domain.name, Evaluation.split)
    )
    return {
        (expert, domain, row.split): Stored(storage.kept(row.artifact), row.num_tokens)
        for expert, domain, row in session.execute(query)
        if row.num_tokens <= most[row.split]
    }


def num_parameters(session: Session, job_ids: Collection[str]) -> dict[str, int]:
    """The parameters of the seed models and experts that these jobs made, by name."""
    of_seeds = select(SeedModel.name, SeedModel.num_parameters).where(SeedModel.job_id.in_(job_ids))
    of_experts = select(Expert.name, Expert.num_parameters).where(Expert.job_id.in_(job_ids))
    return dict(session.execute(of_seeds.union_all(of_experts)).tuples().all())


def domain_words(session: Session, domains: Collection[str]) -> dict[str, dict[str, int]]:
    """The words between white space of each domain that exists, by split."""
    rows = session.execute(select(Domain.name, Domain.splits).where(Domain.name.in_(domains))).tuples()
    return {name: {split: int(counts["words"]) for split, counts in splits.items()} for name, splits in rows}


def stored_distances(
    session: Session,
    storage: Storage,
    clusterings: Sequence[str],
    scores: Mapping[ScoreKey, Stored],
    block_size: int,
    job_ids: Collection[str],
) -> dict[tuple[str, str], Stored]:
    """Distances of the scored test text to the clusters of these jobs' clusterings, by clustering and domain."""
    measures = {(domain, one.num_tokens) for (_, domain, split), one in scores.items() if split == "test"}
    tokenizers = sorted(set(session.scalars(select(Expert.tokenizer_sha256).where(Expert.job_id.in_(job_ids)))))
    ids = dict(session.execute(select(Domain.name, Domain.id)).tuples().all())
    distances: dict[tuple[str, str], Stored] = {}
    for row in session.scalars(select(Clustering).where(Clustering.job_id.in_(job_ids))):
        for (domain, num_tokens), tokenizer in product(sorted(measures), tokenizers):
            key = distances_key(row.artifact_id, ids[domain], tokenizer, "test", block_size, num_tokens)
            if row.name in clusterings and (artifact := find_distances(session, [key])[0]) is not None:
                distances[row.name, domain] = Stored(storage.kept(artifact), num_tokens)
    return distances


def classifications(session: Session, job_ids: Collection[str]) -> dict[str, ReportCard]:
    """The reports of the few-shot classifications among these jobs, by job."""
    reports = list_reports(session, kind="classification")
    return {card.job_id: card for card in reports if card.job_id is not None and card.job_id in job_ids}


@dataclass(frozen=True)
class StoredClusters:
    """A clustering that a replication made: its files, its sources, how far it goes with them, its clusters' words."""

    kept: ArtifactRef
    sources: tuple[str, ...]
    information: float
    terms: tuple[tuple[str, ...], ...]


def stored_clusters(session: Session, storage: Storage, job_ids: Collection[str]) -> dict[str, StoredClusters]:
    """The clusterings that these jobs made, by name."""
    rows = session.scalars(select(Clustering).where(Clustering.job_id.in_(job_ids)).order_by(Clustering.name))
    return {row.name: _clusters_of(storage, row) for row in rows}


def _clusters_of(storage: Storage, row: Clustering) -> StoredClusters:
    terms = tuple(tuple(cluster.terms[:_TERMS]) for cluster in row.clusters)
    sources = tuple(source["name"] for source in row.sources)
    information = row.metrics["overlap"]["normalised_mutual_information"]
    return StoredClusters(storage.kept(row.artifact), sources, information, terms)


def held_out_losses(session: Session, job_id: str) -> dict[str, list[tuple[int, float]]]:
    """The curve of each domain's held-out loss (nats per token) in a training, as step and value."""
    losses: dict[str, list[tuple[int, float]]] = {}
    for point in jobs.metrics(session, job_id):
        if point.name.startswith(HELD_OUT):
            losses.setdefault(point.name.removeprefix(HELD_OUT), []).append((point.step, point.value))
    return losses


def newest_report(session: Session, name: str) -> ReportCard | None:
    """The newest report of a replication, its marks in today's words; None while there is none."""
    card = next((one for one in list_reports(session, kind=REPORT) if one.findings["name"] == name), None)
    return card and card.model_copy(update={"findings": in_todays_words(card.findings)})


def overlap_by(session: Session, job_id: str) -> Overlap | None:
    """The overlap of every two domains that a job measured; None while there is none."""
    report = next((one for one in list_reports(session, kind="overlap") if one.job_id == job_id), None)
    if report is None:
        return None
    names, matrix = report.findings["domains"], report.findings["overlap"]
    return {
        (one, names[j]): float(share) for one, row in zip(names, matrix, strict=True) for j, share in enumerate(row)
    }
