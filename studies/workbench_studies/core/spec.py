"""The spec and the sizes that the replications of all papers share, and how a paper's TOML files are read."""

from __future__ import annotations

import tomllib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal, Self, TypeVar, get_args

from pydantic import Field, TypeAdapter, model_validator

from engine.config import PAPER_BLOCKS, AdaptingConfig, Checked, ModelConfig, TrainingConfig
from engine.text.split_names import HeldOutSplit
from workbench.formatting.shell_command import shell_command
from workbench.kinds.analysis import Evaluate
from workbench.kinds.data import ImportCorpus
from workbench.kinds.kind import Kind, ResultLink, no_path, nothing
from workbench.kinds.training.make_seed import MakeSeed
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.kinds.training.train_expert import TrainExpert
from workbench.kinds.training.train_joint import TrainJoint
from workbench.specs.base import LONGEST_STEM, MOST_LETTERS, Name, Spec
from workbench.specs.requests import PlanStep

SizeName = Literal["tiny", "quick", "small", "smoke"]
SIZE: SizeName = "tiny"  # unless another is given
SMOKE: SizeName = "smoke"  # whose numbers say nothing
TOO_SHORT: frozenset[SizeName] = frozenset({"quick"})  # to tell DEMix from Dense: seeds differ by more than they do
SEEDS = 5  # unless another number is given: with two the rule says *reproduced* too often where nothing differs
ENOUGH_DOCUMENTS = 60  # of test text of a novel domain; a report and a plan name the domains with fewer


@dataclass(frozen=True, kw_only=True)
class Size(Checked):
    """Model, training and text of one size; a paper adds what only it needs."""

    about: str
    shape: ModelConfig
    vocab_size: int
    training: TrainingConfig
    max_bytes: int | None  # of text per domain
    piece_length: int | None = None  # characters of a document at most, in text that it imports
    test_tokens: int  # per domain
    prior_blocks: int = PAPER_BLOCKS

    @property
    def block_size(self) -> int:
        return self.training.block_size

    @property
    def dev_tokens(self) -> int:
        """Exactly the blocks behind a cached prior."""
        return self.prior_blocks * self.block_size


SizeType = TypeVar("SizeType", bound=Size)


def read_table(module: str, name: str) -> dict[str, Any]:
    """The TOML file of this name next to a module."""
    return tomllib.loads(Path(module).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def read_sizes(module: str, kind: type[SizeType]) -> Mapping[SizeName, SizeType]:
    """The sizes of the paper whose module this is, from the `sizes.toml` next to it.

    A size may begin with another (`base`) and change some of its values; `without` names the fields that are None.
    """
    tables = read_table(module, "sizes")
    adapter, names = TypeAdapter(kind), get_args(SizeName)
    return {name: adapter.validate_python(_values(tables, name)) for name in names if name in tables}


def _values(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    own = dict(tables[name])
    values = _values(tables, own.pop("base")) if "base" in own else {}
    values |= dict.fromkeys(own.pop("without", ()))
    is_changed = {key: isinstance(one, dict) and isinstance(values.get(key), dict) for key, one in own.items()}
    return values | {key: values[key] | one if is_changed[key] else one for key, one in own.items()}


@dataclass(frozen=True)
class Run:
    """One seed of a replication; the names of all that it makes begin with that of its seed model."""

    name: str
    seed: int

    @property
    def seed_model(self) -> str:
        return f"{self.name}-s{self.seed}"

    def step_key(self, name: str) -> str:
        """The key of a step of its plan."""
        return f"s{self.seed} {name}"


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


def plan_step(run: Run, key: str, job: Spec, action: str) -> PlanStep:
    """A step of one seed; `key` is its name within the seed."""
    return PlanStep(run.step_key(key), job, f"{run.name}: {action}, seed {run.seed}")


def imports_and_seeds(spec: Replicate, runs: Sequence[Run]) -> Iterator[PlanStep]:
    """The imports of a replication, and a seed model for each seed."""
    for text in spec.imports:
        yield PlanStep(f"import {text.name}", text, f"{spec.name}: import {text.name}")
    for run in runs:
        yield fresh_seed(spec, run, spec.budget.shape)


def fresh_seed(spec: Replicate, run: Run, shape: ModelConfig) -> PlanStep:
    """A fresh seed model of a shape, with a tokenizer of the training domains."""
    vocab_size = spec.budget.vocab_size
    seed = MakeSeed(name=run.seed_model, domains=spec.domains, shape=shape, vocab_size=vocab_size, seed=run.seed)
    return plan_step(run, "seed", seed, "make the seed model")


def scoring(
    spec: Replicate,
    run: Run,
    mixture: str,
    domains: Sequence[str],
    key: str,
    experts: Sequence[str] = (),
    *,
    split: HeldOutSplit = "test",
) -> PlanStep:
    """The scores of a mixture, or of its first expert and of `experts`; `key` is that of its training in the seed."""
    size = spec.budget
    job = Evaluate(
        mixture=mixture,
        experts=list(experts),
        domains=list(domains),
        split=split,
        block_size=size.block_size,
        max_tokens=size.test_tokens if split == "test" else size.dev_tokens,
    )
    more = " and the added experts" if experts else ""
    return plan_step(run, f"{split} {key}", job, f"score {mixture}{more} on {split} text")


def tokens_per_step(step: PlanStep) -> int:
    """Tokens of one update of a training; 0 for other jobs."""
    match step.spec:
        case TrainJoint() | TrainMode() | ComposeMode():
            return tokens_of_update(step.spec.training, len(step.spec.domains))
        case TrainExpert():
            return tokens_of_update(step.spec.training, 1)
    return 0


def tokens_of_update(training: AdaptingConfig, num_domains: int) -> int:
    return training.block_size * training.sequences_per_domain * training.accumulate * num_domains
