"""The spec that the replications of all papers share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from pydantic import Field, model_validator

from workbench.kinds.data import ImportCorpus
from workbench.kinds.kind import ResultLink
from workbench.specs.base import LONGEST_STEM, MOST_LETTERS, Name, Spec
from workbench_studies.core.sizes import SEEDS, Size, SizeName


class Replicate(Spec):
    """Judge a paper's claims by the models and scores of this replication's jobs, and write the report."""

    kind: str
    paper: str
    name: Name = Field(description="Name of the replication; all names that it creates start with it.")
    size: SizeName = Field(
        "tiny",
        description="quick (half an hour of a CPU core a seed), tiny (two hours of two cores with five seeds), "
        "small (a GPU) or smoke (seconds).",
    )
    budget: Size
    seeds: int = Field(
        SEEDS, ge=1, le=20, description="Number of seeds; all is made once per seed, but MoDE's backbone."
    )
    domains: list[Name] = Field(min_length=2, description="Training domains.")
    novel: list[Name] = Field(min_length=1, description="Novel domains.")
    imports: list[ImportCorpus] = Field(default_factory=list, description="Text to import first.")
    partial: bool = Field(False, description="Write a report of the results so far, and list what is missing.")

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
        """The names it creates that start other names, as a clustering's name starts those of its domains."""
        return []

    @abstractmethod
    def names(self) -> list[str]:
        """The names of everything it creates, without the experts of mixtures."""


BUDGET = "Model, trainings and amounts of text, as the size defined them at submission."
CLAIMS = ResultLink("replications", "See the claims", lambda result: {"replication.name": result["name"]})
