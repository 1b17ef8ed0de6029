"""Report on a replication of DEMix."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workbench.kinds.kind import Kind, no_path, nothing
from workbench.specs.base import Name
from workbench_studies.demix.names import DemixRun
from workbench_studies.demix.sizes import SIZES as DEMIX_SIZES
from workbench_studies.demix.sizes import DemixSize
from workbench_studies.kinds.replicate import BUDGET, CLAIMS, Replicate


class ReplicateDemix(Replicate):
    """Judge DEMix's claims by the models and scores of this replication's jobs, and write the report."""

    kind: Literal["replicate-demix"] = "replicate-demix"
    paper: Literal["demix"] = Field("demix", description="The paper.")
    budget: DemixSize = Field(default_factory=lambda data: DEMIX_SIZES[data["size"]], description=BUDGET)
    removed: list[Name] = Field(
        default_factory=list, description="Training domains that are left out to train a model without them."
    )

    @model_validator(mode="after")
    def _of_these(self) -> ReplicateDemix:
        if not set(self.removed) <= set(self.domains):
            raise ValueError("only a training domain can be left out of training")
        return self

    def names(self) -> list[str]:
        runs = [DemixRun(self.name, seed) for seed in range(self.seeds)]
        interleaves = self.budget.interleaved_every is not None
        return [name for run in runs for name in run.names(self.novel, self.removed, interleaves)]


KIND = Kind(
    spec=ReplicateDemix,
    title="Report on",
    creates=nothing,
    requires=nothing,
    reads=no_path,
    runner="workbench_studies.running.replicate_demix:run",
    link=CLAIMS,
    form=None,
)
