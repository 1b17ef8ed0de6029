"""The page Clusters as the place of a result."""

from __future__ import annotations

from ui.kinds.screen import ResultLink
from ui.present.pages import CLUSTERS


def clusters_link(label: str, view: str) -> ResultLink:
    """A link to one view of the clustering that a result names."""
    return ResultLink(
        CLUSTERS,
        label,
        lambda result: {
            "clusters.part": "Look at clusters",
            "clusters.name": result["clustering"],
            "clusters.view": view,
        },
    )
