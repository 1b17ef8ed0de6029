"""Kinds of job on clusterings: find clusters, edit them, and make domains of them (C-BTM §2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from engine.clusters.config import ClusterConfig, ClusterMethod, Numbers, Scaling, TfidfConfig
from engine.config import MOST_TOKENS
from workbench.kinds.kind import Kind, ResultLink, named, no_path, nothing
from workbench.specs.base import Name, Spec, Stem

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def _config_field(config: type[Any], name: str) -> Any:
    """A field of one of the engine's configs: its default, title, description and bounds."""
    field = next(field for field in fields(config) if field.name == name)
    marks = ("title", "description", "ge", "gt", "le", "lt")
    return Field(field.default, **{mark: field.metadata[mark] for mark in marks if mark in field.metadata})


def embeds_with_model(_: Session, spec: Mapping[str, Any]) -> bool:
    """Whether a job with this stored spec embeds documents with a language model."""
    return spec.get("embedder") == "hidden_states"


class ClusteringSpec(Spec):
    """How to cluster: the fields that a clustering and its steps have in common."""

    name: Stem = Field(description="Name of the clustering.")
    domains: list[Name] = Field(
        default_factory=list, description="Domains to cluster; empty takes all training domains."
    )
    num_clusters: int = _config_field(ClusterConfig, "num_clusters")
    method: ClusterMethod = _config_field(ClusterConfig, "method")
    max_iterations: int = _config_field(ClusterConfig, "max_iterations")
    embedder: Literal["tfidf", "hidden_states"] = Field(
        "tfidf", description="tfidf: the words of a document (paper); hidden_states: hidden states of a seed model."
    )
    seed_model: Name | None = Field(None, description="Seed model whose mean hidden state is the vector.")
    max_tokens: int = Field(512, ge=1, le=MOST_TOKENS, description="Tokens of a document that the seed model reads.")
    numbers: Numbers = _config_field(TfidfConfig, "numbers")
    scaling: Scaling = _config_field(TfidfConfig, "scaling")
    dimension: int = _config_field(TfidfConfig, "dimension")
    max_words: int = _config_field(TfidfConfig, "max_words")
    sample_size: int = Field(
        100_000, ge=1, description="Training documents to fit clusters on; others are assigned to the nearest."
    )
    map_size: int = Field(20_000, ge=0, description="Approximate number of documents on the map; 0: no map.")
    piece_length: int | None = Field(
        None,
        ge=100,
        description="Cluster longer documents in pieces of at most this many characters; empty: as they are.",
    )
    shard_size: int = Field(
        50_000, ge=1, description="Documents that one job assigns to clusters; more are split into several jobs."
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the sample, the vectors, the clusters and the map.")

    @model_validator(mode="after")
    def _consistent(self) -> ClusteringSpec:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        if (self.embedder == "hidden_states") != (self.seed_model is not None):
            raise ValueError("name a seed model for hidden states, and only for these")
        return self

    @property
    def clusters(self) -> ClusterConfig:
        """The engine's config of the clusters."""
        return ClusterConfig(self.method, self.num_clusters, self.max_iterations, self.seed)

    @property
    def words(self) -> TfidfConfig:
        """The engine's config of the word vectors."""
        return TfidfConfig(self.numbers, self.scaling, self.dimension, self.max_words, self.seed)


def clusters_link(label: str, view: str) -> ResultLink:
    """A link to one view of the clustering that a result names."""
    part = {"clusters.part": "Look at clusters", "clusters.view": view}
    return ResultLink("clusters", label, lambda result: {**part, "clusters.name": result["clustering"]})


class FindClusters(ClusteringSpec):
    """Find clusters among documents, assign every document to one, and describe them (C-BTM §2.1)."""

    kind: Literal["find-clusters"] = "find-clusters"


FIND_CLUSTERS = Kind(
    spec=FindClusters,
    title="Find clusters",
    creates=lambda spec: named("clustering", spec.name),
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains)],
    reads=no_path,
    uses_gpu=embeds_with_model,
    empty_means_all_domains=True,
    command="cluster find NAME",
    sentence=lambda result: f"{result['sentence']} {result.get('lengths', '')}".strip(),
    link=clusters_link("See the clusters", "Map"),
)


class ClusterPart(ClusteringSpec):
    """One step of finding clusters, for any worker: the fit, or the documents of one shard."""

    kind: Literal["cluster-part"] = "cluster-part"
    shard: int | None = Field(None, ge=0, description="Number of the shard; empty fits the clusters.")


CLUSTER_PART = Kind(
    spec=ClusterPart,
    title="Part of clustering",
    creates=nothing,
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains)],
    reads=no_path,
    uses_gpu=embeds_with_model,
    sentence=lambda result: (
        ("The fit" if result["shard"] is None else f"Shard {result['shard']}") + " of the clustering "
        f"{result['clustering']} is computed."
    ),
    runner="jobs.kinds.clusters.find_clusters:run_part",
)


class MakeClusterDomains(Spec):
    """Make a domain CLUSTERING/NUMBER of each cluster that has none, or whose documents have changed."""

    kind: Literal["make-cluster-domains"] = "make-cluster-domains"
    clustering: Name = Field(description="Name of the clustering.")
    domains: list[Name] = Field(
        default_factory=list, description="Expected names of the new domains; empty takes free names."
    )


MAKE_CLUSTER_DOMAINS = Kind(
    spec=MakeClusterDomains,
    title="Make domains of",
    creates=lambda spec: named("domain", *spec.domains),
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    creates_unnamed_domains=lambda _: True,
    command="cluster domains CLUSTERING",
    link=clusters_link("Train on them", "Train on them"),
    runner="jobs.kinds.clusters.domains:make_cluster_domains",
)


class MergeClusters(Spec):
    """Merge several clusters into one; experts trained on one of them become stale."""

    kind: Literal["merge-clusters"] = "merge-clusters"
    clustering: Name = Field(description="Name of the clustering.")
    clusters: list[str] = Field(min_length=2, description="Clusters to merge, by number or name.")


MERGE_CLUSTERS = Kind(
    spec=MergeClusters,
    title="Merge clusters of",
    creates=nothing,
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    command="cluster merge CLUSTERING",
    link=clusters_link("See the clusters", "Words & documents"),
    runner="jobs.kinds.clusters.edits:merge",
)


class SplitCluster(Spec):
    """Find clusters within a cluster; experts trained on it become stale."""

    kind: Literal["split-cluster"] = "split-cluster"
    clustering: Name = Field(description="Name of the clustering.")
    cluster: str = Field(description="Cluster to split, by number or name.")
    num_clusters: int = Field(2, ge=2, le=2**16, title="Number of clusters", description="Number of new clusters.")
    method: Literal["balanced", "unbalanced"] = Field(
        "balanced", description="balanced: sizes differ by at most one; unbalanced: plain k-means."
    )
    sample_size: int = Field(
        100_000, ge=1, description="Training documents to fit clusters on; others are assigned to the nearest."
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the sample and the first centres.")


def _embeds_with_model(session: Session, spec: Mapping[str, Any]) -> bool:
    """Whether the documents of the clustering that a stored spec names are embedded with a language model."""
    from sqlalchemy import select

    from workbench.schema.tables import Clustering

    statement = select(Clustering.seed_id).where(Clustering.name == spec.get("clustering"))
    return session.scalar(statement) is not None


SPLIT_CLUSTER = Kind(
    spec=SplitCluster,
    title="Split a cluster of",
    creates=nothing,
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    uses_gpu=_embeds_with_model,
    command="cluster split CLUSTERING CLUSTER",
    link=clusters_link("See the clusters", "Words & documents"),
    runner="jobs.kinds.clusters.edits:split",
)


class PinDocuments(Spec):
    """Assign documents to a cluster by hand; experts trained on a cluster that loses or gains one become stale."""

    kind: Literal["pin-documents"] = "pin-documents"
    clustering: Name = Field(description="Name of the clustering.")
    cluster: str = Field(description="Their new cluster, by number or name.")
    documents: list[str] = Field(
        min_length=1, description="Documents: the SHA-256 of each text, or at least its first 8 digits."
    )


PIN_DOCUMENTS = Kind(
    spec=PinDocuments,
    title="Pin documents in",
    creates=nothing,
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    command="cluster pin CLUSTERING CLUSTER",
    runner="jobs.kinds.clusters.edits:pin",
)


KIND = (FIND_CLUSTERS, CLUSTER_PART, MAKE_CLUSTER_DOMAINS, MERGE_CLUSTERS, SPLIT_CLUSTER, PIN_DOCUMENTS)
