"""The spec of a replication of DEMix."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workbench.specs.base import Name
from workbench_studies.core.spec import BUDGET, Replicate
from workbench_studies.demix.names import SIZES as DEMIX_SIZES
from workbench_studies.demix.names import DemixRun, DemixSize


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

    @property
    def runs(self) -> list[DemixRun]:
        return [DemixRun(self.name, seed) for seed in range(self.seeds)]

    def own_options(self) -> list[str]:
        return ["--removed", ",".join(self.removed)] if self.removed else []

    def names(self) -> list[str]:
        interleaves = self.budget.interleaved_every is not None
        return [name for run in self.runs for name in run.names(self.novel, self.removed, interleaves)]
