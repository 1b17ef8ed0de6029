"""Find clusters among documents (C-BTM §2.1)."""

from __future__ import annotations

from typing import Literal

from workbench.kinds.clusters.clustering_spec import ClusteringSpec, clusters_link, embeds_with_model
from workbench.kinds.kind import Kind, named, no_path


class FindClusters(ClusteringSpec):
    """Find clusters among documents, assign every document to one, and describe them (C-BTM §2.1)."""

    kind: Literal["find-clusters"] = "find-clusters"


KIND = Kind(
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
