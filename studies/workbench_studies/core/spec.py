"""The spec that the replications of all papers share."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import PurePath
from typing import Any, Self

from pydantic import Field, model_validator

from workbench.formatting.shell_command import shell_command
from workbench.kinds.data import ImportCorpus
from workbench.kinds.kind import Kind, ResultLink, no_path, nothing
from workbench.specs.base import LONGEST_STEM, MOST_LETTERS, Name, Spec
from workbench_studies.core.sizes import SEEDS, SIZE, Size, SizeName


class Replicate(Spec):
    """Judge a paper's claims by the models and scores of this replication's jobs, and write the report."""

    kind: str
    paper: str
    name: Name = Field(description="Name of the replication; all names that it creates start with it.")
    size: SizeName = Field(
        SIZE,
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

    @property
    def corpus(self) -> str:
        """The name of the folder that the text came from."""
        return PurePath(self.imports[0].path).parent.parent.name if self.imports else "imported domains"

    @property
    def command(self) -> str:
        """The command that makes it again; a folder is named without where it lies, so that others can see it."""
        named = ["--domains", ",".join(self.domains), "--novel", ",".join(self.novel)]
        text = [self.corpus] if self.imports else named
        chosen = ["--size", self.size, "--seeds", str(self.seeds), "--name", self.name]
        return shell_command("replicate", self.paper, *text, *chosen, *self.own_options(), "--here")

    @property
    def everywhere(self) -> list[str]:
        """All domains."""
        return [*self.domains, *self.novel]

    def role_of(self, domain: str) -> str:
        """`training` or `novel`."""
        return "novel" if domain in self.novel else "training"

    def own_options(self) -> list[str]:
        """The options of the command that only its paper has."""
        return []

    def stems(self) -> list[str]:
        """The names it creates that start other names, as a clustering's name starts those of its domains."""
        return []

    @abstractmethod
    def names(self) -> list[str]:
        """The names of everything it creates, without the experts of mixtures."""


def kind_of(spec: type[Replicate]) -> Kind[Any]:
    """The kind of job that judges a paper and writes the report."""
    return Kind(
        spec=spec,
        title="Report on",
        creates=nothing,
        requires=nothing,
        reads=no_path,
        runner="workbench_studies.running.replicate:run",
        link=ResultLink("replications", "See the claims", lambda result: {"replication.name": result["name"]}),
        form=None,
    )


BUDGET = "Model, trainings and amounts of text, as the size defined them at submission."
