"""What the replications of all papers have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

from pydantic import Field, model_validator

from workbench.kinds.data.import_corpus import ImportCorpus
from workbench.replications.sizes import Size, SizeName
from workbench.spec_base import LONGEST_STEM, MOST_LETTERS, Name, Spec


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


BUDGET = "Model, trainings and amounts of text: those of the size when it was submitted."
