"""The spec of a replication of C-BTM."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal

from pydantic import Field

from workbench.specs.base import LocalPath
from workbench_studies.cbtm.names import SIZES as CBTM_SIZES
from workbench_studies.cbtm.names import (
    Arm,
    CbtmRun,
    CbtmSize,
    Division,
    ablated,
    arms_of,
    balanced,
    smaller_arms,
)
from workbench_studies.core.spec import BUDGET, Replicate


class ReplicateCbtm(Replicate):
    """Judge C-BTM's claims by the models and scores of this replication's jobs, and write the report."""

    kind: Literal["replicate-cbtm"] = "replicate-cbtm"
    paper: Literal["cbtm"] = Field("cbtm", description="The paper.")
    budget: CbtmSize = Field(default_factory=lambda data: CBTM_SIZES[data["size"]], description=BUDGET)
    tasks: LocalPath = Field("", description="Folder of labelled tasks, for tables 1, 10 and 11; empty: without them.")

    @property
    def runs(self) -> list[CbtmRun]:
        return [CbtmRun(self.name, seed) for seed in range(self.seeds)]

    @property
    def arms(self) -> list[Arm]:
        return arms_of(self.budget, len(self.domains))

    @property
    def main(self) -> Arm:
        """The arm that is looked at closely, and that the ablations are held against."""
        return balanced(self.budget.num_ablated)

    @property
    def reference(self) -> Arm:
        """The arm with as many balanced clusters at the budget of the ablations."""
        return self.ablated("balanced")

    @property
    def dense_reference(self) -> Arm:
        return self.ablated("balanced", 1)

    @property
    def metadata(self) -> Arm:
        return self.ablated("metadata", len(self.domains))

    def ablated(self, division: Division, num_models: int | None = None) -> Arm:
        """An arm at the budget of the ablations; of as many models as the main one, unless a number is given."""
        return ablated(self.budget, division, num_models or self.main.num_models)

    def own_options(self) -> list[str]:
        return ["--tasks", PurePath(self.tasks).name] if self.tasks else []

    def names(self) -> list[str]:
        arms = smaller_arms(self.budget)
        small = [name for run in self.runs if arms for name in run.smaller.names(arms)]
        return [*small, *(name for run in self.runs for name in run.names(self.arms))]

    def stems(self) -> list[str]:
        return [name for run in self.runs for name in run.stems(self.arms)]
