"""Make a domain of each cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.kinds.clusters.clustering_spec import clusters_link
from workbench.kinds.kind import Kind, named, no_path
from workbench.specs.base import Name, Spec


class MakeClusterDomains(Spec):
    """Make a domain CLUSTERING/NUMBER of each cluster that has none, or whose documents have changed."""

    kind: Literal["make-cluster-domains"] = "make-cluster-domains"
    clustering: Name = Field(description="Name of the clustering.")
    domains: list[Name] = Field(
        default_factory=list, description="Expected names of the new domains; empty takes free names."
    )


KIND = Kind(
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
