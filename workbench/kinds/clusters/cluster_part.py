"""Compute one step of a clustering: the fit, or one shard of the documents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.kinds.clusters.clustering_spec import ClusteringSpec, embeds_with_model
from workbench.kinds.kind import Kind, Result, named, no_path, nothing


class ClusterPart(ClusteringSpec):
    """One step of finding clusters, for any worker: the fit, or the documents of one shard."""

    kind: Literal["cluster-part"] = "cluster-part"
    shard: int | None = Field(None, ge=0, description="Number of the shard; empty fits the clusters.")


def _sentence(result: Result) -> str:
    part = "The fit" if result["shard"] is None else f"Shard {result['shard']}"
    return f"{part} of the clustering {result['clustering']} is computed."


KIND = Kind(
    spec=ClusterPart,
    title="Part of clustering",
    creates=nothing,
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains)],
    reads=no_path,
    uses_gpu=embeds_with_model,
    sentence=_sentence,
    runner="jobs.kinds.clusters.find_clusters:run_part",
)
