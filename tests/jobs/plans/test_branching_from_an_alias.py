"""A plan that branches from an alias uses the mixture that it means."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.plans import clusterings
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
