"""What a person may ask for about clusters (C-BTM). The engine's own sentences describe the engine's knobs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Literal

from pydantic import Field, model_validator

from engine.clusters.config import ClusterConfig, ClusterMethod, Numbers, Scaling, TfidfConfig
from engine.config import MOST_TOKENS
from workbench.spec_base import Name, Spec, Stem


def _knob(config: type[Any], name: str) -> Any:
    """A field as the engine's config has it: its default, sentence and bounds."""
    one = next(one for one in fields(config) if one.name == name)
    bounds = {bound: one.metadata[bound] for bound in ("ge", "gt", "le", "lt") if bound in one.metadata}
    return Field(one.default, description=one.metadata["description"], **bounds)


class _Clusters(Spec):
    """How to cluster: the fields that a whole clustering and its parts have in common."""

    name: Stem = Field(description="Name of the clustering.")
    domains: list[Name] = Field(default_factory=list, description="Domains to cluster; empty takes all training ones.")
    num_clusters: int = _knob(ClusterConfig, "num_clusters")
    method: ClusterMethod = _knob(ClusterConfig, "method")
    max_iterations: int = _knob(ClusterConfig, "max_iterations")
    embedder: Literal["tfidf", "hidden_states"] = Field(
        "tfidf", description="tfidf: the words of a document (paper); hidden_states: how a seed model reads it."
    )
    seed_model: Name | None = Field(None, description="Seed model whose mean hidden state is the vector.")
    max_tokens: int = Field(512, ge=1, le=MOST_TOKENS, description="Tokens of a document that the seed model reads.")
    numbers: Numbers = _knob(TfidfConfig, "numbers")
    scaling: Scaling = _knob(TfidfConfig, "scaling")
    dimension: int = _knob(TfidfConfig, "dimension")
    max_words: int = _knob(TfidfConfig, "max_words")
    sample_size: int = Field(
        100_000, ge=1, description="Training documents that the clusters are fitted on; the others go to the nearest."
    )
    map_size: int = Field(20_000, ge=0, description="Documents on the map, about; 0 draws none.")
    shard_size: int = Field(
        50_000, ge=1, description="Documents that one job puts into clusters; more than these are spread over workers."
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the sample, the vectors, the clusters and the map.")

    @model_validator(mode="after")
    def _consistent(self) -> _Clusters:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        if (self.embedder == "hidden_states") != (self.seed_model is not None):
            raise ValueError("name a seed model for hidden states, and only for these")
        return self

    @property
    def clusters(self) -> ClusterConfig:
        """The engine's knobs of the clusters."""
        return ClusterConfig(self.method, self.num_clusters, self.max_iterations, self.seed)

    @property
    def words(self) -> TfidfConfig:
        """The engine's knobs of the words."""
        return TfidfConfig(self.numbers, self.scaling, self.dimension, self.max_words, self.seed)


class FindClusters(_Clusters):
    """Find clusters among documents, put every document into one, and describe them (C-BTM §2.1)."""

    kind: Literal["find-clusters"] = "find-clusters"


class ClusterPart(_Clusters):
    """A part of finding clusters that any worker may take: the fit, or the documents of one shard."""

    kind: Literal["cluster-part"] = "cluster-part"
    shard: int | None = Field(None, ge=0, description="Number of the shard; empty fits the clusters.")


class MergeClusters(Spec):
    """Make one cluster of several; experts trained on one of them become stale."""

    kind: Literal["merge-clusters"] = "merge-clusters"
    clustering: Name = Field(description="Name of the clustering.")
    clusters: list[str] = Field(min_length=2, description="Clusters to merge, by number or name.")


class SplitCluster(Spec):
    """Find clusters within a cluster; experts trained on it become stale."""

    kind: Literal["split-cluster"] = "split-cluster"
    clustering: Name = Field(description="Name of the clustering.")
    cluster: str = Field(description="Cluster to split, by number or name.")
    num_clusters: int = Field(2, ge=2, le=2**16, description="Clusters to make of it.")
    method: Literal["balanced", "unbalanced"] = Field(
        "balanced", description="balanced: sizes differ by at most one; unbalanced: plain k-means."
    )
    sample_size: int = Field(
        100_000, ge=1, description="Training documents that the clusters are fitted on; the others go to the nearest."
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the sample and the first centres.")


class PinDocuments(Spec):
    """Put documents into a cluster by hand; experts trained on a cluster that loses or gains one become stale."""

    kind: Literal["pin-documents"] = "pin-documents"
    clustering: Name = Field(description="Name of the clustering.")
    cluster: str = Field(description="Cluster to put them into, by number or name.")
    documents: list[str] = Field(
        min_length=1, description="Documents: the SHA-256 of each text, or 8 digits of it and more."
    )


class MakeClusterDomains(Spec):
    """Make a domain CLUSTERING/NUMBER of each cluster that has none, or holds other documents by now."""

    kind: Literal["make-cluster-domains"] = "make-cluster-domains"
    clustering: Name = Field(description="Name of the clustering.")
    domains: list[Name] = Field(
        default_factory=list, description="Names that the new domains are expected to get; empty takes what is free."
    )


class MakeDomain(Spec):
    """Make a domain of chosen documents of a clustering, wherever they came from; what is held out stays held out."""

    kind: Literal["make-domain"] = "make-domain"
    clustering: Name = Field(description="Name of the clustering.")
    name: Name = Field(description="Name of the new domain.")
    areas: list[str] = Field(
        default_factory=list,
        description="Areas on the map, each the numbers x y of one corner after another; empty: the map is not asked.",
    )
    clusters: list[str] = Field(
        default_factory=list, description="Clusters to take documents of, by number or name; empty: of any."
    )

    @model_validator(mode="after")
    def _some(self) -> MakeDomain:
        if not (self.areas or self.clusters):
            raise ValueError("name areas, clusters, or both")
        for area in self.areas:
            _corners(area)
        return self

    @property
    def corners(self) -> list[list[tuple[float, float]]]:
        """The areas as corners."""
        return [_corners(area) for area in self.areas]


def _corners(area: str) -> list[tuple[float, float]]:
    try:
        numbers = [float(one) for one in area.split()]
    except ValueError:
        raise ValueError(f"an area must be numbers, but is “{area[:40]}”") from None
    if len(numbers) < 6 or len(numbers) % 2 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"an area must be pairs of numbers for three corners or more, but is “{area[:40]}”")
    pairs: Iterator[float] = iter(numbers)
    return list(zip(pairs, pairs, strict=True))
