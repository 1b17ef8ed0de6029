"""The inputs of a gate that weighs by nearness: its clustering's files, and the cluster of each expert.

An expert is of a cluster by its domain, which was made of that cluster's documents as they are or as they were: an
edit takes no mixture down before its models are trained again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.clusters.config import is_term
from engine.errors import MixtureError
from engine.loading.plan import Route
from engine.mixing.gate_type import ClusteringGateConfig, GateConfig, gate_type
from engine.text.split_names import HeldOutSplit
from workbench.schema.names import free_name
from workbench.schema.tables import Artifact, Cluster, Clustering, Corpus, Domain, Evaluation, Expert
from workbench.store.storage import Storage

_FORMER = "former_domains"  # of Clustering.metrics


def former_domains(row: Clustering) -> dict[str, str]:
    """The id of each former domain's cluster, or of the cluster that it was merged into, by the domain's id."""
    return dict(row.metrics.get(_FORMER, {}))


def keep_former(row: Clustering, former: Mapping[str, str], merged: Sequence[tuple[Cluster, Cluster]] = ()) -> None:
    """Stores the former domains; those of merged clusters go to the clusters that they were merged into.

    `merged` has pairs of a removed cluster and the one it was merged into.
    """
    into = {gone.id: cluster.id for gone, cluster in merged}
    own = {str(gone.domain_id): cluster.id for gone, cluster in merged if gone.domain_id}
    updated = {domain: into.get(cluster, cluster) for domain, cluster in former.items()} | own
    row.metrics = {**row.metrics, _FORMER: updated}


def set_domains(session: Session, row: Clustering, domain_ids: dict[int, str]) -> None:
    """Stores the domains made of clusters' documents, by cluster number; keeps former ones."""
    wanted = [cluster for cluster in row.clusters if cluster.number in domain_ids]
    keep_former(row, former_domains(row) | {cluster.domain_id: cluster.id for cluster in wanted if cluster.domain_id})
    for cluster in wanted:
        cluster.domain, cluster.stale = session.get_one(Domain, domain_ids[cluster.number]), False
    session.flush()


def domain_names(session: Session, row: Clustering) -> dict[int, str]:
    """A free name CLUSTERING/NUMBER for the domain of each cluster that has none, or an outdated one."""
    taken = set(session.scalars(select(Domain.name).where(Domain.name.startswith(f"{row.name}/", autoescape=True))))
    wanted = [cluster for cluster in row.clusters if cluster.domain_id is None or cluster.stale]
    return {cluster.number: free_name(f"{row.name}/{cluster.number}", ".", taken) for cluster in wanted}


def corpus_name(session: Session, row: Clustering) -> str:
    """A free name for the corpus of these domains: that of the clustering, later with a number."""
    return free_name(row.name, " ", set(session.scalars(select(Corpus.name))))


def find_route(session: Session, storage: Storage, gate: GateConfig, experts: Sequence[Expert]) -> Route | None:
    """The route of a gate that needs one, None for another; raises MixtureError when it cannot weigh an expert."""
    if not isinstance(gate, ClusteringGateConfig):
        return None
    if complaints := route_complaints(session, gate, homes_of(experts)):
        raise MixtureError(" ".join(complaints), "Take experts that were trained on its clusters, or another gate.")
    row = session.get_one(Clustering, gate.clustering)
    numbers = cluster_numbers(session, row.id)
    return Route(
        row.artifact_id,
        storage.kept(row.artifact),
        storage.kept(row.seed.artifact) if row.seed else None,
        tuple(numbers.get(str(expert.domain_id)) for expert in experts),
    )


def clustering_of(gate: GateConfig) -> str | None:
    """The id of the clustering that a gate names; None where it names or needs none."""
    return gate.clustering if isinstance(gate, ClusteringGateConfig) else None


def homes_of(experts: Sequence[Expert]) -> dict[str, str | None]:
    """The id of each expert's domain by the expert's name; None where it was trained on several."""
    return {expert.name: expert.domain_id for expert in experts}


def route_complaints(session: Session, gate: GateConfig, homes: Mapping[str, str | None]) -> list[str]:
    """Why a gate cannot weigh these experts (see `homes_of`); nothing for one that looks at no clusters."""
    if not isinstance(gate, ClusteringGateConfig):
        return []
    if not gate.clustering:
        return ["The cluster gate names no clustering. Give the id of one (workbench cluster show)."]
    row = session.get(Clustering, gate.clustering)
    if row is None:
        return [f"The cluster gate names a clustering that does not exist: {gate.clustering}."]
    if gate_type(gate.kind).weighs_unclustered:
        return []
    numbers = cluster_numbers(session, row.id)
    unclustered = [name for name, domain_id in homes.items() if domain_id not in numbers]
    return [f"“{name}” cannot be weighed by nearness: it is not of a cluster of “{row.name}”." for name in unclustered]


def gate_complaints(session: Session, gate: GateConfig, experts: Sequence[Expert]) -> list[str]:
    """Why a mixture of these experts cannot have this gate: as above, and also if no expert has a cluster."""
    if complaints := route_complaints(session, gate, homes_of(experts)):
        return complaints
    clustering = clustering_of(gate)
    if clustering and not {expert.domain_id for expert in experts} & set(cluster_numbers(session, clustering)):
        name = session.get_one(Clustering, clustering).name
        return [f"No expert can be weighed by nearness: none is of a cluster of “{name}”."]
    return []


def cluster_numbers(session: Session, clustering_id: str | None) -> dict[str, int]:
    """The number of the cluster that each domain was made of, now or before an edit, by the domain's id."""
    row = session.get(Clustering, clustering_id) if clustering_id else None
    if row is None:
        return {}
    numbers = {cluster.id: cluster.number for cluster in row.clusters}
    former = {domain: numbers[cluster] for domain, cluster in former_domains(row).items() if cluster in numbers}
    return former | {cluster.domain_id: cluster.number for cluster in row.clusters if cluster.domain_id}


def clustering_names(session: Session) -> dict[str, str]:
    """The names of all clusterings, by the ids by which gates know them."""
    return dict(session.execute(select(Clustering.id, Clustering.name).order_by(Clustering.name)).tuples().all())


@dataclass(frozen=True)
class ClusterLabel:
    """The name of a cluster, and its terms, the strongest first."""

    name: str
    terms: tuple[str, ...]


def describe_clusters(session: Session, gate: GateConfig) -> dict[int, ClusterLabel]:
    """The name and terms of each cluster that a gate looks at, by its number; none for a gate that looks at none."""
    if not isinstance(gate, ClusteringGateConfig):
        return {}
    rows = select(Cluster.number, Cluster.name, Cluster.terms).where(Cluster.clustering_id == gate.clustering)
    return {number: ClusterLabel(name, tuple(filter(is_term, terms))) for number, name, terms in session.execute(rows)}


def distances_key(
    artifact_id: str, domain_id: str, tokenizer_sha256: str, split: HeldOutSplit, block_size: int, num_tokens: int
) -> str:
    """The key of the distances of one text to the centres of a clustering as it is: an edit makes it another one."""
    return f"distances-in-documents:{artifact_id}:{domain_id}:{tokenizer_sha256}:{split}:{block_size}:{num_tokens}"


def find_distances(session: Session, keys: Sequence[str]) -> list[Artifact | None]:
    """The stored distances of each key; if there are none, those of a text whose blocks were each read on their own.

    So they were measured once; what was scored then is still mixed by them until it is evaluated again.
    """
    former = [key.replace("distances-in-documents:", "distances:", 1) for key in keys]
    rows = session.scalars(select(Artifact).where(Artifact.key.in_([*keys, *former])))
    by_key = {row.key: row for row in rows}
    return [by_key.get(key) or by_key.get(old) for key, old in zip(keys, former, strict=True)]


def key_of(route: Route, evaluation: Evaluation, tokenizer_sha256: str) -> str:
    """The key of the distances of the text that an evaluation scored."""
    return distances_key(
        route.artifact_id,
        evaluation.domain_id,
        tokenizer_sha256,
        evaluation.split,
        evaluation.block_size,
        evaluation.num_tokens,
    )
