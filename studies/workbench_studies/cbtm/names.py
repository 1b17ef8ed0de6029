"""The systems that a replication of C-BTM compares, and their names in the registry.

An arm is one way to divide the text among expert language models (ELMs). Names derive from the replication's:
`NAME-s0-k8` is the clustering of the first seed with eight clusters and the mixture of the models trained on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal

from pydantic import Field

from engine.clusters.config import ClusterMethod, Scaling
from engine.config import PAPER_TEMPERATURE, ModelConfig, MoeConfig, TrainingConfig
from workbench.specs.base import LocalPath
from workbench_studies.core.spec import BUDGET, Replicate, Run, Size, read_sizes, read_table


@dataclass(frozen=True, kw_only=True)
class CbtmSize(Size):
    """Clusters are balanced by documents, so long ones are cut (`piece_length`).

    `training` is that of the dense model: all models of a clustering together see as many tokens in as many
    updates. What `tiny` leaves at less than the full budget, and the time that this saves, is in
    docs/replication/README.md. The fields with a default were added later: a replication that was started before keeps
    what it had.
    """

    seeding: TrainingConfig  # of the seed model, on all training text
    clusters: tuple[int, ...]  # how many to compare; 1 is the dense model
    less: float  # share of the updates in the smaller budget
    clusters_at_less: tuple[int, ...]
    num_ablated: int  # clusters where they are random, unbalanced, or scaled in another way
    moe: MoeConfig | None = MoeConfig()  # figure 12; None: no mixture of experts can be made of this family
    moe_seeds: int | None = None  # how many seeds have one; None: all
    ablations_at_less: bool = False  # other ways to divide the text see the smaller budget; they once saw the full one
    also_ablated: tuple[int, ...] = ()  # other numbers of clusters that are random and unbalanced (figures 13 and 14)
    scaled_otherwise: bool = True  # whether vectors are also scaled in the other way, which no claim is about
    smaller: ModelConfig | None = None  # shape of the smaller experts of figures 7 and 11; None: there are none
    extra_seeds: int | None = None  # how many seeds have these numbers and that shape; None: all


SIZES = read_sizes(__file__, CbtmSize)


def shared(training: TrainingConfig, num_models: int, share: float = 1.0) -> TrainingConfig:
    """The training of one of several models that together see a share of the tokens of the dense one.

    Batches are divided among the models; where they do not divide, updates make up for it.
    """
    sequences = max(1, training.sequences_per_domain // num_models)
    total = share * training.max_steps * training.sequences_per_domain
    num_steps = max(1, round(total / (num_models * sequences)))
    return replace(training, sequences_per_domain=sequences, num_steps=num_steps)


Division = ClusterMethod | Literal["metadata"]
# Nearness to clusters; a posterior with equal or cached priors; one model alone; the average of all parameters; a
# mixture of experts in the place of an arm's one model (figure 12); a posterior with calibrated evidence (ours).
Weighing = Literal["cluster", "uniform", "cached", "alone", "average", "moe", "calibrated"]
PAPER = read_table(__file__, "paper")
TEMPERATURES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
T = PAPER_TEMPERATURE
MOE = "moe"  # the key of a mixture of experts
HEADLINE: Scaling = "unit_rows"  # the only reading in which T = 0.1 is the soft choice of table 9 (decision 16)
OTHER: Scaling = "standardise"  # the paper's text
_SHORT: dict[Division, str] = {"balanced": "k", "unbalanced": "unbalanced", "random": "random", "metadata": "metadata"}


@dataclass(frozen=True)
class Arm:
    """One way to divide the text among models, and whether they see the smaller budget."""

    division: Division
    num_models: int
    scaling: Scaling = HEADLINE
    at_less: bool = False

    @property
    def clustering(self) -> str:
        """The name of its clustering within a run."""
        return f"{_SHORT[self.division]}{self.num_models}{'' if self.scaling == HEADLINE else f'-{self.scaling}'}"

    @property
    def key(self) -> str:
        return _at(self, self.clustering)

    def __str__(self) -> str:
        what = {
            "balanced": "cluster",
            "unbalanced": "unbalanced cluster",
            "random": "random cluster",
            "metadata": "metadata domain",
        }[self.division]
        return f"{self.num_models} {what}{'' if self.num_models == 1 else 's'}"


def _at(arm: Arm, name: str) -> str:
    """A name with the suffix of an arm's budget, where a size has such arms at both."""
    return f"{name}{'-less' if arm.at_less and arm.division == 'balanced' else ''}"


def balanced(num_clusters: int, *, at_less: bool = False) -> Arm:
    """The arm of the paper itself; one cluster is the dense model."""
    return Arm("balanced", num_clusters, at_less=at_less)


DENSE = balanced(1)
DENSE_AT_LESS = balanced(1, at_less=True)


class CbtmRun(Run):
    """One seed: names of what it makes."""

    @property
    def seed_mixture(self) -> str:
        """The dense model that all branch from."""
        return f"{self.seed_model}-seed"

    @property
    def seed_expert(self) -> str:
        return f"{self.seed_mixture}/dense"

    @property
    def smaller(self) -> SmallerRun:
        """The names of its experts of a smaller shape."""
        return SmallerRun(self.name, self.seed)

    def moe(self, arm: Arm) -> str:
        """The mixture of experts (figure 12) that reads what the one model of an arm reads."""
        return f"{self.seed_model}-{_at(arm, MOE)}"

    def moe_expert(self, arm: Arm) -> str:
        return f"{self.moe(arm)}/moe"

    def average(self, arm: Arm) -> str:
        """The model whose parameters are the average of an arm's models."""
        return f"{self.mixture(arm)}-average"

    def average_expert(self, arm: Arm) -> str:
        return f"{self.average(arm)}/average"

    def clustering(self, arm: Arm) -> str:
        return f"{self.seed_model}-{arm.clustering}"

    def mixture(self, arm: Arm) -> str:
        """The mixture of an arm's models."""
        return f"{self.seed_model}-{arm.key}"

    def model(self, arm: Arm, number: int) -> str:
        """One of an arm's models, before it is in their mixture."""
        return f"{self.mixture(arm)}.{number}"

    def domains(self, arm: Arm, metadata: Sequence[str]) -> list[str]:
        """The domain that each model of an arm is trained on."""
        if arm.division == "metadata":
            return list(metadata)
        return [f"{self.clustering(arm)}/{number}" for number in range(arm.num_models)]

    def experts(self, arm: Arm, metadata: Sequence[str]) -> list[str]:
        """The experts of an arm, in the order of their clusters."""
        return [f"{self.model(arm, number)}/{domain}" for number, domain in enumerate(self.domains(arm, metadata))]

    def names(self, arms: Sequence[Arm]) -> list[str]:
        """Everything that is made under a name of its own; that of an average is shorter than others."""
        made = [name for arm in arms for name in (self.mixture(arm), self.model(arm, arm.num_models - 1))]
        return [self.seed_model, self.seed_mixture, self.moe(DENSE_AT_LESS), *made]

    def stems(self, arms: Sequence[Arm]) -> list[str]:
        """The names with which others begin: those of clusterings."""
        return [self.clustering(arm) for arm in arms if arm.division != "metadata"]


class SmallerRun(CbtmRun):
    """The same seed with experts of a smaller shape, on the same clusters (figures 7 and 11)."""

    @property
    def seed_model(self) -> str:
        return f"{super().seed_model}-small"

    def step_key(self, name: str) -> str:
        return super().step_key(f"small {name}")

    def clustering(self, arm: Arm) -> str:
        return CbtmRun(self.name, self.seed).clustering(arm)


# systems whose losses are compared ---------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """One way to use the models of an arm: how they are weighed, and by how many at once."""

    arm: Arm | None  # None: the seed model
    weighing: Weighing = "cluster"
    top_k: int | None = None
    temperature: float = T
    freeze_after: int | None = None
    expert: int | None = None  # the number of the one that is alone
    is_smaller: bool = False  # its models are of the smaller shape


SEED = System(None, "alone")


def sparse(arm: Arm, top_k: int) -> System:
    """An arm with so many models in use at each token; all of them where there are not more."""
    return System(arm, top_k=top_k) if top_k < arm.num_models else System(arm)


def printed(num_clusters: int, top_k: int, temperature: float = T) -> float | None:
    """A cell of the paper's table 9; None where the paper prints none. T does not matter for one expert."""
    if num_clusters == 1:
        return float(PAPER["dense"])
    row = PAPER["table_9"].get(str(num_clusters), {}).get(str(top_k))
    return row and float(row[0 if top_k == 1 else TEMPERATURES.index(temperature)])


class ReplicateCbtm(Replicate):
    """Judge C-BTM's claims by the models and scores of this replication's jobs, and write the report."""

    kind: Literal["replicate-cbtm"] = "replicate-cbtm"
    paper: Literal["cbtm"] = Field("cbtm", description="The paper.")
    budget: CbtmSize = Field(default_factory=lambda data: SIZES[data["size"]], description=BUDGET)
    tasks: LocalPath = Field("", description="Folder of labelled tasks, for tables 1, 10 and 11; empty: without them.")

    @property
    def runs(self) -> list[CbtmRun]:
        return [CbtmRun(self.name, seed) for seed in range(self.seeds)]

    @property
    def arms(self) -> list[Arm]:
        """Every arm of the size, the most telling ones first."""
        size, main = self.budget, self.budget.num_ablated
        numbers = sorted(size.clusters, key=lambda number: (number not in (1, main), number))
        divisions: tuple[Division, ...] = ("random", "unbalanced")
        return [
            *map(balanced, numbers),
            self.metadata,
            *(self.ablated(division, number) for number in (main, *size.also_ablated) for division in divisions),
            *([Arm("balanced", main, OTHER)] if size.scaled_otherwise else []),
            *(balanced(number, at_less=True) for number in size.clusters_at_less),
        ]

    @property
    def smaller_arms(self) -> list[Arm]:
        """Those that are also trained in the smaller shape: the dense model and the main one, at the smaller budget."""
        numbers = (1, self.budget.num_ablated) if self.budget.smaller else ()
        return [balanced(number, at_less=True) for number in numbers]

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
        return Arm(division, num_models or self.main.num_models, at_less=self.budget.ablations_at_less)

    def own_options(self) -> list[str]:
        return ["--tasks", PurePath(self.tasks).name] if self.tasks else []

    def names(self) -> list[str]:
        small = [name for run in self.runs if self.smaller_arms for name in run.smaller.names(self.smaller_arms)]
        return [*small, *(name for run in self.runs for name in run.names(self.arms))]

    def stems(self) -> list[str]:
        return [name for run in self.runs for name in run.stems(self.arms)]
