"""The fields that a clustering and its steps share. The engine's configs describe their own options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from engine.clusters.config import ClusterConfig, ClusterMethod, Numbers, Scaling, TfidfConfig
from engine.config import MOST_TOKENS
from workbench.kinds.kind import ResultLink
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
