"""Domains made of clusters' documents: their names, and their clusters after edits.

A domain that was replaced, or whose cluster was merged away, is a former domain: experts trained on it are still
weighed by a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.schema.names import free_name
from workbench.schema.tables import Cluster, Clustering, Corpus, Domain

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
