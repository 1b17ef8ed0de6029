"""Experts and clusterings of a request by the names that a user gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import NotFoundError

if TYPE_CHECKING:
    from workbench.settings import Settings


def find_member(members: Mapping[str, str], name: str) -> str:
    """An expert of a mixture by its name, or by its domain's where that is enough. `members`: names with domains."""
    if name in members:
        return name
    by_domain = [expert for expert, domain in members.items() if domain == name]
    if len(by_domain) == 1:
        return by_domain[0]
    raise NotFoundError("expert taking part", name, members)


def with_clustering_id(gate: Mapping[str, Any], settings: Settings | None = None) -> dict[str, Any]:
    """The same settings of a gate, with the id of the clustering that was given by its name."""
    if gate.get("clustering") is None:
        return dict(gate)
    from workbench.registry.clusters.clusterings import get_clustering
    from workbench.registry.database import reading

    with reading(settings) as session:
        return {**gate, "clustering": get_clustering(session, gate["clustering"]).id}
