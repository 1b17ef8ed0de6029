"""The systems that a replication of MoDE compares, their names in the registry, and those of each table and figure.

An arm is one model: a way to adapt the backbone, and on what. Names derive from the replication's: `NAME-s0-composed`
is the mixture of the first seed that holds the composed model, its one expert. An arm in several groups is trained
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field, model_validator

from engine.config import LoraConfig, TrainingConfig
from engine.methods.mode.config import ModeConfig
from workbench.specs.base import Name
from workbench_studies.core.spec import BUDGET, Replicate, Run, Size, read_sizes, read_table

Method = Literal["backbone", "full", "lora", "mode", "frozen", "composed"]
On = Literal["mixed", "first", "second"]  # both targets, or one of them


@dataclass(frozen=True)
class Arm:
    """One model. `frozen` and `composed` have the two experts of stage 1; only gates learn, or all."""

    method: Method
    on: On = "mixed"
    lora: LoraConfig | None = None
    shape: ModeConfig | None = None
    num_parts: int = 1
    sequences: int | None = None  # of each target; None: all of its text
    rate: float | None = None  # None: that of the size
    longer: int = 1  # times the steps of the size

    @property
    def key(self) -> str:
        """The name of the arm within a run."""
        label = (
            self._what,
            "" if self.on == "mixed" else self.on,
            f"n{self.sequences}" if self.sequences else "",
            f"rate{self.rate:g}" if self.rate else "",
            f"x{self.longer}" if self.longer > 1 else "",
        )
        return "-".join(part for part in label if part)

    @property
    def _what(self) -> str:
        if self.lora:
            targets = "" if self.lora.targets == "attention" else f"-{self.lora.targets}"
            return f"lora{self.lora.rank}{targets}{'-embeddings' if self.lora.embeddings else ''}"
        if self.shape:
            copied = "-copied" if self.shape.init == "copy" else ""
            return f"mode{self.num_parts}-{self.shape.num_blocks}x{self.shape.expert_layers}{copied}"
        return self.method

    @property
    def is_composed(self) -> bool:
        """Whether it is of the two experts of stage 1."""
        return self.method in ("frozen", "composed")

    def __str__(self) -> str:
        how = (
            f" on {self.sequences} sequences" if self.sequences else "",
            f" at {self.rate:g}" if self.rate else "",
            f" with {self.longer} times the steps" if self.longer > 1 else "",
        )
        return self._words + "".join(how)

    @property
    def _words(self) -> str:
        if self.lora:
            return f"LoRA of rank {self.lora.rank}{_where(self.lora)}"
        if self.shape and self.on == "mixed":
            start = "copied" if self.shape.init == "copy" else "fresh"
            return f"MoDE with {self.num_parts} {start} expert{'' if self.num_parts == 1 else 's'}"
        if self.shape:
            return f"MoDE of {self.shape.num_blocks} × {self.shape.expert_layers} layers"
        return _WORDS[self.method]


def _where(lora: LoraConfig) -> str:
    """The layers that are adapted besides attention."""
    if lora.targets == "ffn":
        return f" in FFNs {'and embeddings ' if lora.embeddings else ''}alone"
    more = [*(["FFNs"] if lora.targets == "all" else []), *(["embeddings"] if lora.embeddings else [])]
    return f" in {' and '.join(more)}, too" if more else ""


_WORDS: dict[Method, str] = {
    "backbone": "the backbone",
    "full": "full fine-tuning",
    "frozen": "MoDE with 2 frozen experts",
    "composed": "MoDE with 2 trained experts",
}
BACKBONE = Arm("backbone")


@dataclass(frozen=True)
class ModeRun(Run):
    """One seed: names of what it makes, and which seed's backbone it adapts: None is its own."""

    backbone_seed: int | None = None

    @property
    def of_backbone(self) -> ModeRun:
        """The run that makes the backbone of this one."""
        seed = self.seed if self.backbone_seed is None else self.backbone_seed
        return self if seed == self.seed else ModeRun(self.name, seed)

    @property
    def backbone(self) -> str:
        """The trained backbone: a mixture of one dense model, and the seed model that is its copy."""
        return self.of_backbone.mixture(BACKBONE)

    def mixture(self, arm: Arm) -> str:
        return f"{self.seed_model}-{arm.key}"

    def expert(self, arm: Arm, targets: Sequence[str]) -> str:
        """The name of an arm's model."""
        own = {"backbone": "dense", "full": "dense", "lora": "mixed", "frozen": "composed", "composed": "composed"}
        domains = targets_of(arm, targets)
        mode = domains[0] if len(domains) == 1 else "mixed"
        mixture = self.backbone if arm == BACKBONE else self.mixture(arm)
        return f"{mixture}/{own.get(arm.method, mode)}"

    def names(self, arms: Sequence[Arm]) -> list[str]:
        """Everything that is made under a name of its own."""
        own = [self.seed_model, self.backbone] if self.of_backbone == self else []
        return [*own, *map(self.mixture, arms)]


def runs_of(name: str, seeds: int, *, shared_backbone: bool) -> list[ModeRun]:
    """The runs of a replication; with a shared backbone all of them adapt that of the first."""
    return [ModeRun(name, seed, 0 if shared_backbone else None) for seed in range(seeds)]


def roles(domains: Sequence[str], targets: Sequence[str] = (), retention: str = "") -> dict[str, Any]:
    """What is adapted to, and what must be retained: unless named, the first domain, and as targets the next two."""
    retained = retention or next((domain for domain in domains if domain not in targets), "")
    others = [domain for domain in domains if domain != retained]
    return {"targets": list(targets) or others[:2], "retention": retained}


def targets_of(arm: Arm, targets: Sequence[str]) -> list[str]:
    """The targets that an arm is trained on."""
    return {"mixed": list(targets), "first": [targets[0]], "second": [targets[1]]}[arm.on]


@dataclass(frozen=True, kw_only=True)
class ModeSize(Size):
    """`training` is that of every method, on as much of each target in every batch; of one target on twice as much.

    Amounts given in sequences count blocks of text of each target.
    """

    seeding: TrainingConfig  # of the backbone
    mode: ModeConfig  # of each expert
    lora: LoraConfig
    ranks: tuple[int, ...]  # table 2, figure 3
    grid: tuple[tuple[int, int], ...]  # table 3: blocks, and layers of the expert in each
    layers: tuple[int, ...]  # figure 3: layers of the expert in each block
    sequences: tuple[int, ...]  # figure 3: training sequences, the fewest first; all there are come last
    mixed_sequences: tuple[int, ...]  # figure 5
    rates: tuple[float, ...]  # others than that of the training
    longer: int  # times as many steps; 3: a composed model has had three times as many
    prior_blocks: int = 0  # nothing is weighed by a prior
    patience: int | None = None  # of arms on fewer sequences, in evaluations; replications once had none
    own_starts: bool = False  # each training's experts have random layers of their own; replications once shared some
    shared_backbone: bool = False  # of all seeds, as in the paper; replications once trained one for each
    ablation_seeds: int | None = None  # the first so many train what is in neither table 1 nor “steps”; None: all


SIZES = read_sizes(__file__, ModeSize)


PAPER = read_table(__file__, "paper")
Cell = tuple[int, int]  # blocks, and layers of the expert in each
TABLE_3: Mapping[Cell, Sequence[float]] = {
    (int(blocks), int(layers)): row for (blocks, _, layers), row in PAPER["table_3"].items()
}
Group = Literal["table 1", "steps", "rates", "table 2", "table 3", "figure 3", "figure 5"]
STAGE_1: tuple[On, ...] = ("first", "second")
_SEARCHED: tuple[str, ...] = ("full", "lora", "one")


def table_1(size: ModeSize) -> dict[str, Arm]:
    """Its rows, all trained on both targets at last."""
    return {
        "full": Arm("full"),
        "lora": Arm("lora", lora=size.lora),
        "one": Arm("mode", shape=size.mode),
        "two": Arm("mode", shape=size.mode, num_parts=2),
        "frozen": Arm("frozen"),
        "composed": Arm("composed"),
    }


def single(size: ModeSize, on: On) -> Arm:
    """The expert of stage 1 on one target."""
    return Arm("mode", on=on, shape=size.mode)


def copied(size: ModeSize) -> Arm:
    """One expert on both targets that starts as a copy of the backbone's layers, as the workbench's own do."""
    return Arm("mode", shape=replace(size.mode, init="copy"))


def longer(size: ModeSize) -> dict[str, Arm]:
    """What is compared with the composed model, with as many steps as it and its experts had together."""
    rows = table_1(size)
    return {row: replace(rows[row], longer=size.longer) for row in ("full", "lora", "two")}


def by_rate(size: ModeSize) -> dict[str, dict[float, Arm]]:
    """Methods without a first stage at several rates, the lowest first; one of these is the size's own."""
    rows, own = table_1(size), size.training.peak_rate
    rates = sorted({*size.rates, own})
    return {row: {rate: replace(rows[row], rate=None if rate == own else rate) for rate in rates} for row in _SEARCHED}


def by_rank(size: ModeSize) -> dict[int, Arm]:
    """Table 2: on the second target, the change scaled alike for every rank."""
    scale = size.lora.alpha / size.lora.rank
    shapes = {rank: replace(size.lora, rank=rank, alpha=scale * rank) for rank in sorted({*size.ranks, size.lora.rank})}
    return {rank: Arm("lora", on="second", lora=shape) for rank, shape in shapes.items()}


def in_more_layers(size: ModeSize) -> dict[str, Arm]:
    """Table 2: feed-forward networks, token vectors, or both are changed as well."""
    changes: dict[str, dict[str, Any]] = {"ffn": {"targets": "all"}, "embeddings": {"embeddings": True}}
    changes["both"] = changes["ffn"] | changes["embeddings"]
    return {name: Arm("lora", on="second", lora=replace(size.lora, **change)) for name, change in changes.items()}


def by_shape(size: ModeSize) -> dict[Cell, Arm]:
    """Table 3: on the second target, by blocks and by the expert's layers in each."""
    return {
        cell: Arm("mode", on="second", shape=replace(size.mode, num_blocks=cell[0], expert_layers=cell[1]))
        for cell in size.grid
    }


def by_layers(size: ModeSize) -> dict[int, Arm]:
    """Figure 3: experts of more layers in each of the same blocks."""
    layers = sorted({*size.layers, size.mode.expert_layers})
    return {layer: Arm("mode", on="second", shape=replace(size.mode, expert_layers=layer)) for layer in layers}


def by_sequences(size: ModeSize) -> dict[str, dict[int | None, Arm]]:
    """Figure 3: on so many sequences of the second target; None is all, and comes last."""
    arms: dict[str, Arm] = {
        "lora": Arm("lora", on="second", lora=size.lora),
        "mode": single(size, "second"),
    }
    return {method: _on(arm, size.sequences) for method, arm in arms.items()}


def by_mixture(size: ModeSize) -> dict[str, dict[int | None, Arm]]:
    """Figure 5: on so many sequences of each target; the baselines on the fewest and on all."""
    return {
        row: _on(arm, size.mixed_sequences if row in ("frozen", "composed") else size.mixed_sequences[:1])
        for row, arm in table_1(size).items()
        if row != "one"
    }


def _on(arm: Arm, amounts: tuple[int, ...]) -> dict[int | None, Arm]:
    return {amount: replace(arm, sequences=amount) for amount in (*amounts, None)}


def groups_of(size: ModeSize) -> Mapping[Group, list[Arm]]:
    """Every arm once, in the first group that needs it; the most telling ones come first."""
    text: dict[Group, list[Arm]] = {
        "table 1": [*(single(size, on) for on in STAGE_1), *table_1(size).values(), copied(size)],
        "steps": list(longer(size).values()),
        "rates": [arm for of_row in by_rate(size).values() for arm in of_row.values()],
        "table 2": [*by_rank(size).values(), *in_more_layers(size).values()],
        "table 3": list(by_shape(size).values()),
        "figure 3": [
            *by_layers(size).values(),
            *(arm for of_method in by_sequences(size).values() for arm in of_method.values()),
        ],
        "figure 5": [arm for of_row in by_mixture(size).values() for arm in of_row.values()],
    }
    first: dict[Arm, Group] = {}
    for group, arms in text.items():
        for arm in arms:
            first.setdefault(arm, group)
    return {group: [arm for arm, of in first.items() if of == group] for group in text}


def seeds_of(size: ModeSize, group: Group, seeds: int) -> int:
    """How many of the seeds train a group's arms: all of those that table 1 and equal steps are about."""
    if group in ("table 1", "steps") or size.ablation_seeds is None:
        return seeds
    return min(seeds, size.ablation_seeds)


def arms_of(size: ModeSize) -> list[Arm]:
    """Every arm of a size but the backbone."""
    return [arm for group in groups_of(size).values() for arm in group]


class ReplicateMode(Replicate):
    """Judge MoDE's claims by the models and scores of this replication's jobs, and write the report."""

    kind: Literal["replicate-mode"] = "replicate-mode"
    paper: Literal["mode"] = Field("mode", description="The paper.")
    budget: ModeSize = Field(default_factory=lambda data: SIZES[data["size"]], description=BUDGET)
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
        return [BACKBONE, *arms_of(self.budget)]

    def own_options(self) -> list[str]:
        return ["--targets", ",".join(self.targets), "--retention", self.retention]

    def names(self) -> list[str]:
        return [name for run in self.runs for name in run.names(arms_of(self.budget))]
