"""Pin documents to a cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.kinds.kind import Kind, named, no_path, nothing
from workbench.specs.base import Name, Spec


class PinDocuments(Spec):
    """Assign documents to a cluster by hand; experts trained on a cluster that loses or gains one become stale."""

    kind: Literal["pin-documents"] = "pin-documents"
    clustering: Name = Field(description="Name of the clustering.")
    cluster: str = Field(description="Their new cluster, by number or name.")
    documents: list[str] = Field(
        min_length=1, description="Documents: the SHA-256 of each text, or at least its first 8 digits."
    )


KIND = Kind(
    spec=PinDocuments,
    title="Pin documents in",
    creates=nothing,
    requires=lambda spec: named("clustering", spec.clustering),
    reads=no_path,
    command="cluster pin CLUSTERING CLUSTER",
    runner="jobs.kinds.clusters.edits:pin",
)
