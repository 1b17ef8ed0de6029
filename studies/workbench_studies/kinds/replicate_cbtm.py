"""Report on a replication of C-BTM."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.kinds.kind import Kind, no_path, nothing
from workbench.specs.base import LocalPath
from workbench_studies.cbtm.names import Arm, CbtmRun, arms_of, smaller_arms
from workbench_studies.cbtm.sizes import SIZES as CBTM_SIZES
from workbench_studies.cbtm.sizes import CbtmSize
from workbench_studies.kinds.replicate import BUDGET, CLAIMS, Replicate


class ReplicateCbtm(Replicate):
    """Judge C-BTM's claims by the models and scores of this replication's jobs, and write the report."""

    kind: Literal["replicate-cbtm"] = "replicate-cbtm"
    paper: Literal["cbtm"] = Field("cbtm", description="The paper.")
    budget: CbtmSize = Field(default_factory=lambda data: CBTM_SIZES[data["size"]], description=BUDGET)
    tasks: LocalPath = Field("", description="Folder of labelled tasks, for tables 1, 10 and 11; empty: without them.")

    def names(self) -> list[str]:
        small = [name for run in self._runs() if self._smaller() for name in run.smaller.names(self._smaller())]
        return [*small, *(name for run in self._runs() for name in run.names(self._arms()))]

    def stems(self) -> list[str]:
        return [name for run in self._runs() for name in run.stems(self._arms())]

    def _runs(self) -> list[CbtmRun]:
        return [CbtmRun(self.name, seed) for seed in range(self.seeds)]

    def _smaller(self) -> list[Arm]:
        return smaller_arms(self.budget)

    def _arms(self) -> list[Arm]:
        return arms_of(self.budget, len(self.domains))


KIND = Kind(
    spec=ReplicateCbtm,
    title="Report on",
    creates=nothing,
    requires=nothing,
    reads=no_path,
    runner="workbench_studies.running.replicate_cbtm:run",
    link=CLAIMS,
    form=None,
)
