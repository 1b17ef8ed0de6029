"""Clusterings: registering, listing, editing and deleting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session, joinedload, selectinload

from engine.clusters.config import is_term
from engine.files import ArtifactRef
from workbench.answers.cards import ClusterCard, ClusteringCard
from workbench.errors import BadSpecError, JobError, NotFoundError
from workbench.formatting.number_format import shorten
from workbench.registry.clusters.cluster_routing import former_domains, keep_former
from workbench.registry.database import plain
from workbench.registry.experts import changed_domains
from workbench.registry.references import refuse_if_used, refuse_renaming, unfinished_jobs
from workbench.schema.names import by_name, clean_name, ensure_free, free_name
from workbench.schema.tables import Artifact, Cluster, Clustering, Corpus, Domain, Expert, Mixture
from workbench.store.artifacts import find_artifact, forget_made_from
from workbench.store.storage import Storage

NAMED_AFTER = 3  # terms in the default name of a cluster
LONGEST_TERM = 30  # characters of a term in a table
_LONGEST = 60  # characters of such a name


@dataclass(frozen=True)
class ClusterFacts:
    """The result of clustering for one cluster; `before` is its former number, None for a new one.

    `changed` is true if its documents changed; `merged` are the former numbers of clusters merged into it.
    """

    num_documents: int
    terms: list[str]
    representatives: list[str]
    before: int | None = None
    changed: bool = False
    merged: frozenset[int] = frozenset()


@dataclass(frozen=True)
class SourceFiles:
    """A source domain of a clustering; `kept` is None when it was deleted or its text changed."""

    name: str
    kept: ArtifactRef | None
    folder: str
    licence: str = ""
    num_bytes: int = 0


@dataclass(frozen=True)
class ClusteringFiles:
    """The files of a clustering and its sources, read from the registry at once."""

    id: str
    name: str
    artifact_id: str
    kept: ArtifactRef
    seed: ArtifactRef | None
    sources: list[SourceFiles]
    numbers: dict[str, int]  # by name

    def number(self, cluster: str) -> int:
        """The number of a cluster given by number or name; raises NotFoundError with the existing names."""
        return _number_of(cluster, self.numbers, self.name)


def list_clusterings(session: Session) -> list[ClusteringCard]:
    """All clusterings by name."""
    related = [selectinload(Clustering.clusters).joinedload(Cluster.domain), joinedload(Clustering.artifact)]
    return [
        _card(session, row) for row in session.scalars(select(Clustering).options(*related).order_by(Clustering.name))
    ]


def get_clustering(session: Session, name: str) -> ClusteringCard:
    """One clustering with its clusters."""
    return _card(session, clustering_row(session, name))


def clustering_row(session: Session, name: str) -> Clustering:
    """The row of a clustering; raises NotFoundError with the existing names."""
    return by_name(session, Clustering, name)


def clustering_files(session: Session, storage: Storage, name: str) -> ClusteringFiles:
    """The files of a clustering and its documents; nothing is hashed here."""
    row = clustering_row(session, name)
    return ClusteringFiles(
        row.id,
        row.name,
        row.artifact_id,
        storage.kept(row.artifact),
        storage.kept(row.seed.artifact) if row.seed else None,
        [_source_files(session, storage, source) for source in row.sources],
        {cluster.name: cluster.number for cluster in row.clusters},
    )


def _source_files(session: Session, storage: Storage, source: dict[str, Any]) -> SourceFiles:
    """The source domain, or another of its name with the same text; its pieces where long documents were cut."""
    row = session.get(Domain, source["id"])
    if row is None:
        row = session.scalar(select(Domain).where(Domain.name == source["name"]))
    if row is None or row.data_sha256 != source["data_sha256"]:
        return SourceFiles(source["name"], None, "")
    if length := source.get("piece_length"):
        cut = find_artifact(session, pieces_key(source["id"], row.data_sha256, length))
        return SourceFiles(source["name"], storage.kept(cut) if cut else None, "", row.corpus.licence, row.num_bytes)
    return SourceFiles(source["name"], storage.kept(row.artifact), row.folder, row.corpus.licence, row.num_bytes)


def pieces_key(domain_id: str, data_sha256: str, length: int) -> str:
    """The key of a domain's documents with long ones in pieces; they go with the domain, whose id it holds."""
    return f"pieces:{domain_id}:{data_sha256}:{length}"


def register_clustering(
    session: Session, *, name: str, clusters: Sequence[ClusterFacts], **columns: Any
) -> ClusteringCard:
    """Registers a clustering whose files are stored already; each cluster is named after its first terms.

    `columns` are the others of `Clustering`.
    """
    ensure_free(session, Clustering, name)
    num_documents = sum(facts.num_documents for facts in clusters)
    row = Clustering(name=name, num_documents=num_documents, clusters=_clusters({}, clusters), **columns)
    session.add(row)
    session.flush()
    return _card(session, row)


def replace_clusters(
    session: Session, id: str, was: str, artifact: Artifact, metrics: dict[str, Any], clusters: Sequence[ClusterFacts]
) -> ClusteringCard:
    """Stores an edit: remaining clusters keep names, notes and domains; changed ones become stale.

    Domains of merged clusters become former domains of the resulting cluster.
    `was` is the id of the artifact that was edited. Raises JobError when another edit came first.
    """
    row = require_unedited(session, id, was)
    old = row.artifact
    before = {cluster.number: cluster for cluster in row.clusters}
    for number, cluster in before.items():
        cluster.number = -1 - number  # out of the way: numbers are unique
    session.flush()
    former = former_domains(row)
    row.clusters = _clusters(before, clusters)
    row.artifact, row.metrics = artifact, metrics
    merged = [
        (before[number], before[facts.before])
        for facts in clusters
        if facts.before is not None
        for number in facts.merged
    ]
    keep_former(row, former, merged)
    session.flush()
    forget_made_from(session, old.id)
    session.delete(old)
    return _card(session, row)


def require_unedited(session: Session, id: str, was: str) -> Clustering:
    """The row of a clustering; raises JobError when its artifact was replaced meanwhile."""
    row = session.get(Clustering, id)
    if row is None or row.artifact_id != was:
        raise JobError("The clustering was changed meanwhile.", "Try again.")
    return row


def _clusters(before: dict[int, Cluster], facts: Sequence[ClusterFacts]) -> list[Cluster]:
    """The rows in the order of their numbers, reusing old rows."""
    old_rows = [before.get(cluster.before) if cluster.before is not None else None for cluster in facts]
    taken = {row.name for row in old_rows if row}
    rows = []
    for number, (cluster, row) in enumerate(zip(facts, old_rows, strict=True)):
        if row is None:
            row = Cluster(name=_name_after(cluster.terms, number, taken), stale=False)
            taken.add(row.name)
        row.number, row.num_documents = number, cluster.num_documents
        row.terms, row.representatives = cluster.terms, cluster.representatives
        row.stale = row.domain_id is not None and (row.stale or cluster.changed)
        rows.append(row)
    return rows


def _name_after(terms: Sequence[str], number: int, taken: set[str]) -> str:
    """A name of the first terms; with the number if it is taken or there are no terms."""
    name = plain(" ".join(terms[:NAMED_AFTER])).replace(",", "")[:_LONGEST].strip()
    if name and name not in taken and not name.isdecimal():
        return name
    return free_name(f"{name} #{number}".strip(), ".", taken)


def change_cluster(
    session: Session, clustering: str, cluster: str, *, name: str | None = None, notes: str | None = None
) -> ClusteringCard:
    """Renames a cluster or replaces its notes; no document moves, and no expert becomes stale.

    Raises InUseError for a new name while an unfinished job refers to the cluster.
    """
    row = cluster_row(clustering_row(session, clustering), cluster)
    return describe_cluster(session, row.id, row.name if name is None else name, row.notes if notes is None else notes)


def describe_cluster(session: Session, id: str, name: str, notes: str) -> ClusteringCard:
    """Sets the name and notes of a cluster given by id; raises BadSpecError when it no longer exists.

    By id, since an edit may have given its number to another cluster. Raises InUseError for a new name while an
    unfinished job refers to it.
    """
    cluster = session.get(Cluster, id)
    if cluster is None:
        raise BadSpecError(
            [f"The cluster to rename to “{name}” no longer exists: it was merged into another one."],
            "Reload the clusters.",
        )
    row = cluster.clustering
    if (name := name if name == cluster.name else clean_name("cluster", name)) != cluster.name:
        if name.isdecimal():
            raise BadSpecError([f"A cluster's name must not be a number: “{name}”."], "Choose a word.")
        if any(other.name == name for other in row.clusters):
            raise BadSpecError([f"Another cluster of “{row.name}” is already called “{name}”."], "Choose another name.")
        fields = ["cluster", "clusters"]
        refuse_renaming("cluster", cluster.name, unfinished_jobs(session, fields, [cluster.name], row.name))
    cluster.name, cluster.notes = name, plain(notes)
    session.flush()
    return _card(session, row)


def cluster_row(row: Clustering, cluster: str) -> Cluster:
    """A cluster by its name or number; raises NotFoundError with the existing names."""
    return row.clusters[_number_of(cluster, {one.name: one.number for one in row.clusters}, row.name)]


def _number_of(cluster: str, numbers: Mapping[str, int], clustering: str) -> int:
    if cluster in numbers:
        return numbers[cluster]
    if cluster.isdecimal() and int(cluster) < len(numbers):
        return int(cluster)
    known = [f"{number} ({name})" for name, number in numbers.items()]
    raise NotFoundError("cluster", cluster, known, where=f"in “{clustering}”")


def delete_clustering(session: Session, name: str) -> None:
    """Deletes a clustering with its map; its domains stay.

    Raises InUseError when an expert was trained on a cluster, or a mixture's gate or a job needs the clustering.
    """
    row = clustering_row(session, name)
    trained = select(Expert.name).join(Domain).join(Corpus).where(Corpus.clustering_id == row.id)
    users: dict[str, Iterable[str]] = {
        "expert": session.scalars(trained),
        "mixture": [
            mixture.name for mixture in session.scalars(select(Mixture)) if mixture.gate.get("clustering") == row.id
        ],
        "job": unfinished_jobs(session, ["clustering"], [name]),
    }
    refuse_if_used("clustering", name, users)
    session.execute(update(Corpus).where(Corpus.clustering_id == row.id).values(clustering_id=None))
    artifact = row.artifact
    session.delete(row)
    session.flush()
    forget_made_from(session, artifact.id)
    session.delete(artifact)


def _card(session: Session, row: Clustering) -> ClusteringCard:
    query = select(Expert.domain_id, Expert.name).join(Domain).join(Corpus).where(Corpus.clustering_id == row.id)
    trained: dict[str, list[str]] = {}
    for domain_id, name in session.execute(query.order_by(Expert.name)):
        trained.setdefault(str(domain_id), []).append(name)
    changed = changed_domains(session)
    return ClusteringCard.from_fields(
        row,
        sources=[source["name"] for source in row.sources],
        seed=row.seed.name if row.seed else None,
        clusters=[
            ClusterCard.from_fields(
                cluster,
                # earlier versions stored them uncut, and with placeholders
                terms=[shorten(term, LONGEST_TERM) for term in cluster.terms if is_term(term)],
                domain=cluster.domain.name if cluster.domain else None,
                experts=trained.get(cluster.domain_id or "", []),
            )
            for cluster in row.clusters
        ],
        stale_experts=sorted(name for domain in changed for name in trained.get(domain, [])),
        size_bytes=row.artifact.size_bytes,
    )
