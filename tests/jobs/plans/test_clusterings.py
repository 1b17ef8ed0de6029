"""Plans of clusterings: the mixture that an alias means, and updates shared by clusters (C-BTM §A.2)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import EngineError
from jobs.plans import clusterings
from jobs.plans.clusterings import split_steps
from workbench.errors import NotFoundError
from workbench.registry.database import transaction
from workbench.schema.tables import Alias, Mixture
from workbench.specs.requests import TrainClusters


@pytest.mark.usefixtures("home")
def test_branches_are_planned_from_the_mixture_that_an_alias_means(monkeypatch: pytest.MonkeyPatch) -> None:
    with transaction() as session:
        session.add(Alias(name="duo@production", mixture=Mixture(name="duo.2")))

    def candidates(*given: Any) -> None:
        raise NotFoundError("clustering", given[2], where=f"with candidates of {given[3]}")

    monkeypatch.setattr(clusterings, "parent_candidates", candidates)
    spec = TrainClusters(clustering="topics", name="new", branch_from="duo@production")
    with pytest.raises(NotFoundError, match=r"candidates of duo\.2 "):
        clusterings.plan_training(spec)


@pytest.mark.parametrize(("num_steps", "num_clusters"), [(100, 1), (100, 8), (10, 3), (7, 7)])
def test_the_updates_of_all_clusters_are_those_of_the_dense_model(num_steps: int, num_clusters: int) -> None:
    steps = split_steps(num_steps, num_clusters)
    assert (sum(steps), len(steps)) == (num_steps, num_clusters)
    assert max(steps) - min(steps) <= 1


def test_fewer_updates_than_clusters_are_refused() -> None:
    with pytest.raises(EngineError, match="7 steps are too few for 8 clusters"):
        split_steps(7, 8)
