"""What a person may ask for about the papers: a replication, and the judgement that ends it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, Self

from pydantic import Field, model_validator

from workbench.corpus_specs import ImportCorpus
from workbench.replications.cbtm.names import Arm, CbtmRun, arms_of
from workbench.replications.cbtm.sizes import SIZES as CBTM_SIZES
from workbench.replications.cbtm.sizes import CbtmSize
from workbench.replications.demix.names import DemixRun
from workbench.replications.demix.sizes import SIZES as DEMIX_SIZES
from workbench.replications.demix.sizes import DemixSize
from workbench.replications.mode.arms import arms_of as mode_arms
from workbench.replications.mode.names import ModeRun
from workbench.replications.mode.sizes import SIZES as MODE_SIZES
from workbench.replications.mode.sizes import ModeSize
from workbench.replications.sizes import Size, SizeName
from workbench.spec_base import LONGEST_STEM, MOST_LETTERS, LocalPath, Name, Spec


class Replicate(Spec):
    """Judge a paper's claims by the models and scores that jobs of this name made, and write the report."""

    kind: str
    paper: str
    name: Name = Field(description="Name of the replication; the names of all that it makes begin with it.")
    size: SizeName = Field("tiny", description="tiny (two CPU cores, an hour), small (a GPU) or smoke (seconds).")
    budget: Size
    seeds: int = Field(2, ge=1, le=20, description="Seeds; everything is made once for each.")
    domains: list[Name] = Field(min_length=2, description="Training domains.")
    novel: list[Name] = Field(min_length=1, description="Novel domains.")
    imports: list[ImportCorpus] = Field(default_factory=list, description="Text to import before all else.")
    partial: bool = Field(False, description="Report what is there now, and say what is missing.")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({*self.domains, *self.novel}) < len(self.domains) + len(self.novel):
            raise ValueError("name each domain once, as training or as novel")
        for names, most in ((self.names(), MOST_LETTERS), (self.stems(), LONGEST_STEM)):
            longest = max(names, key=len, default="")
            if len(longest) > most:
                raise ValueError(
                    f"the names of what it makes must have at most {most} characters, but “{longest}” would have "
                    f"{len(longest)}: choose a shorter name for it or for the domain"
                )
        return self

    def stems(self) -> list[str]:
        """Those names of what it makes with which other names begin, as those of clusters' domains do."""
        return []

    @abstractmethod
    def names(self) -> list[str]:
        """What everything it makes will be called, the experts of a mixture left out."""


_BUDGET = "Model, trainings and amounts of text: those of the size when it was asked for."


class ReplicateDemix(Replicate):
    """Judge DEMix's claims by the models and scores that jobs of this name made, and write the report."""

    kind: Literal["replicate"] = "replicate"
    paper: Literal["demix"] = Field("demix", description="The paper.")
    budget: DemixSize = Field(default_factory=lambda told: DEMIX_SIZES[told["size"]], description=_BUDGET)
    removed: list[Name] = Field(default_factory=list, description="Training domains that a model is trained without.")

    @model_validator(mode="after")
    def _of_these(self) -> ReplicateDemix:
        if not set(self.removed) <= set(self.domains):
            raise ValueError("only a training domain can be left out of the training")
        return self

    def names(self) -> list[str]:
        runs = [DemixRun(self.name, seed) for seed in range(self.seeds)]
        return [name for run in runs for name in run.names(self.novel, self.removed)]


class ReplicateCbtm(Replicate):
    """Judge C-BTM's claims by the models and scores that jobs of this name made, and write the report."""

    kind: Literal["replicate-cbtm"] = "replicate-cbtm"
    paper: Literal["cbtm"] = Field("cbtm", description="The paper.")
    budget: CbtmSize = Field(default_factory=lambda told: CBTM_SIZES[told["size"]], description=_BUDGET)
    tasks: LocalPath = Field("", description="Folder of labelled tasks, for tables 1, 10 and 11; empty: without them.")

    def names(self) -> list[str]:
        return [name for run in self._runs() for name in run.names(self._arms())]

    def stems(self) -> list[str]:
        return [name for run in self._runs() for name in run.stems(self._arms())]

    def _runs(self) -> list[CbtmRun]:
        return [CbtmRun(self.name, seed) for seed in range(self.seeds)]

    def _arms(self) -> list[Arm]:
        return arms_of(self.budget, len(self.domains))


class ReplicateMode(Replicate):
    """Judge MoDE's claims by the models and scores that jobs of this name made, and write the report."""

    kind: Literal["replicate-mode"] = "replicate-mode"
    paper: Literal["mode"] = Field("mode", description="The paper.")
    budget: ModeSize = Field(default_factory=lambda told: MODE_SIZES[told["size"]], description=_BUDGET)
    novel: list[Name] = Field(default_factory=list, description="Novel domains, which no model is trained on.")
    targets: list[Name] = Field(
        min_length=2, max_length=2, description="The two training domains that models are adapted to."
    )
    retention: Name = Field(description="Training domain that the backbone knows and that must not be forgotten.")

    @model_validator(mode="after")
    def _of_these(self) -> ReplicateMode:
        if not {*self.targets, self.retention} <= set(self.domains) or len({*self.targets, self.retention}) < 3:
            told = "give two targets and another domain to retain, all of them training domains"
            raise ValueError(f"{told} (there are: {', '.join(self.domains)})")
        return self

    @property
    def known(self) -> list[str]:
        """What the backbone is trained on."""
        return [one for one in self.domains if one not in self.targets]

    @property
    def judged(self) -> list[str]:
        """The texts of table 1."""
        return [*self.targets, self.retention]

    def names(self) -> list[str]:
        runs = [ModeRun(self.name, seed) for seed in range(self.seeds)]
        return [name for run in runs for name in run.names(mode_arms(self.budget))]
