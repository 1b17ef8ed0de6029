"""The spec of a replication of MoDE."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workbench.specs.base import Name
from workbench_studies.core.spec import BUDGET, Replicate
from workbench_studies.mode.arms import SIZES as MODE_SIZES
from workbench_studies.mode.arms import ModeSize
from workbench_studies.mode.arms import arms_of as mode_arms
from workbench_studies.mode.names import BACKBONE, Arm, ModeRun, runs_of


class ReplicateMode(Replicate):
    """Judge MoDE's claims by the models and scores of this replication's jobs, and write the report."""

    kind: Literal["replicate-mode"] = "replicate-mode"
    paper: Literal["mode"] = Field("mode", description="The paper.")
    budget: ModeSize = Field(default_factory=lambda data: MODE_SIZES[data["size"]], description=BUDGET)
    novel: list[Name] = Field(default_factory=list, description="Novel domains, which no model is trained on.")
    targets: list[Name] = Field(
        min_length=2, max_length=2, description="The two training domains that models are adapted to."
    )
    retention: Name = Field(description="Training domain that the backbone knows and that must not be forgotten.")

    @model_validator(mode="after")
    def _of_these(self) -> ReplicateMode:
        if not {*self.targets, self.retention} <= set(self.domains) or len({*self.targets, self.retention}) < 3:
            names = ", ".join(self.domains)
            raise ValueError(f"give two targets and another domain to retain, all of them training domains ({names})")
        return self

    @property
    def known(self) -> list[str]:
        """The domains that the backbone is trained on."""
        return [domain for domain in self.domains if domain not in self.targets]

    @property
    def judged(self) -> list[str]:
        """The texts of table 1: both targets, and what is retained."""
        return [*self.targets, self.retention]

    @property
    def others(self) -> list[str]:
        """The other domains that the backbone was trained on."""
        return [domain for domain in self.known if domain != self.retention]

    @property
    def runs(self) -> list[ModeRun]:
        return runs_of(self.name, self.seeds, shared_backbone=self.budget.shared_backbone)

    @property
    def arms(self) -> list[Arm]:
        return [BACKBONE, *mode_arms(self.budget)]

    def own_options(self) -> list[str]:
        return ["--targets", ",".join(self.targets), "--retention", self.retention]

    def names(self) -> list[str]:
        return [name for run in self.runs for name in run.names(mode_arms(self.budget))]
