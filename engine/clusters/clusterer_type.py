"""What a clusterer is to everything but its arithmetic, and the clusterers there are. Imports no torch.

A clusterer is one module of `engine.clusters.clusterers`, or an entry point of the group `expert_workbench.clusterers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError
from engine.plugins import find_plugins

if TYPE_CHECKING:
    from engine.clusters.centroids import Clusters
    from engine.events import Progress


@dataclass(frozen=True)
class ClustererType:
    """A way to find clusters. `find(vectors_ND, config)` yields a Progress after each round, then one Clusters.

    `vectors_ND` are float32, finite, and at least as many as clusters. The same seed must give the same clusters.
    """

    name: str
    sentence: str
    find: Callable[[Any, Any], Iterator[Progress | Clusters]]
    is_random: bool = False  # a new document draws a cluster; otherwise it goes to the nearest centre


@cache
def clusterer_types() -> dict[str, ClustererType]:
    """All clusterers by name. Raises BadPluginError."""
    return find_plugins(
        "engine.clusters.clusterers",
        "expert_workbench.clusterers",
        "CLUSTERER",
        ClustererType,
        lambda one: one.name,
    )


def clusterer_type(name: str) -> ClustererType:
    """The clusterer of this name; raises EngineError with the names there are."""
    if name not in clusterer_types():
        raise EngineError(
            f"There is no clusterer “{name}”. The clusterers are: {', '.join(clusterer_types())}.",
            "Choose one of these, or install the plug-in of that clusterer.",
        )
    return clusterer_types()[name]
