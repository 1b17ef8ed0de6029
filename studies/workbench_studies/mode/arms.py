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

from engine.config import NEW_RATE, LoraConfig, TrainingConfig
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


class Arms:
    """Every arm of a size but the backbone, by table and figure."""

    def __init__(self, size: ModeSize) -> None:
        def lora(**changes: Any) -> Arm:
            return Arm("lora", on="second", lora=replace(size.lora, **changes))

        def mode(**changes: Any) -> Arm:
            return Arm("mode", on="second", shape=replace(size.mode, **changes))

        self.singles = {on: Arm("mode", on=on, shape=size.mode) for on in STAGE_1}  # the experts of stage 1
        self.table_1 = {  # its rows, all trained on both targets at last
            "full": Arm("full"),
            "lora": Arm("lora", lora=size.lora),
            "one": Arm("mode", shape=size.mode),
            "two": Arm("mode", shape=size.mode, num_parts=2),
            "frozen": Arm("frozen"),
            "composed": Arm("composed"),
        }
        # one expert that starts as a copy of the backbone's layers, as the workbench's own do
        self.copied = Arm("mode", shape=replace(size.mode, init="copy"))
        # what is compared with the composed model, with as many steps as it and its experts had together
        self.longer = {row: replace(self.table_1[row], longer=size.longer) for row in ("full", "lora", "two")}
        own = size.training.learning_rate or NEW_RATE
        rates = {rate: None if rate == own else rate for rate in sorted({*size.rates, own})}
        self.by_rate = {  # methods without a first stage
            row: {rate: replace(self.table_1[row], rate=given) for rate, given in rates.items()}
            for row in ("full", "lora", "one")
        }
        scale = size.lora.alpha / size.lora.rank  # of the change, alike for every rank
        ranks = sorted({*size.ranks, size.lora.rank})
        self.by_rank = {rank: lora(rank=rank, alpha=scale * rank) for rank in ranks}  # table 2
        self.in_more_layers = {  # table 2: feed-forward networks, token vectors, or both are changed as well
            "ffn": lora(targets="all"),
            "embeddings": lora(embeddings=True),
            "both": lora(targets="all", embeddings=True),
        }
        self.by_shape = {cell: mode(num_blocks=cell[0], expert_layers=cell[1]) for cell in size.grid}  # table 3
        layers = sorted({*size.layers, size.mode.expert_layers})
        self.by_layers = {layer: mode(expert_layers=layer) for layer in layers}  # figure 3, in the same blocks
        self.by_sequences = {"lora": _on(lora(), size.sequences), "mode": _on(mode(), size.sequences)}  # figure 3
        self.by_mixture = {  # figure 5; the baselines on the fewest and on all
            row: _on(arm, size.mixed_sequences if arm.is_composed else size.mixed_sequences[:1])
            for row, arm in self.table_1.items()
            if row != "one"
        }

    @property
    def groups(self) -> Mapping[Group, list[Arm]]:
        """Every arm once, in the first group that needs it; the most telling ones come first."""

        def flatten(nested: Mapping[str, Mapping[Any, Arm]]) -> list[Arm]:
            return [arm for of in nested.values() for arm in of.values()]

        groups: dict[Group, list[Arm]] = {
            "table 1": [*self.singles.values(), *self.table_1.values(), self.copied],
            "steps": list(self.longer.values()),
            "rates": flatten(self.by_rate),
            "table 2": [*self.by_rank.values(), *self.in_more_layers.values()],
            "table 3": list(self.by_shape.values()),
            "figure 3": [*self.by_layers.values(), *flatten(self.by_sequences)],
            "figure 5": flatten(self.by_mixture),
        }
        first: dict[Arm, Group] = {}
        for group, arms in groups.items():
            for arm in arms:
                first.setdefault(arm, group)
        return {group: [arm for arm, of in first.items() if of == group] for group in groups}

    @property
    def every(self) -> list[Arm]:
        return [arm for group in self.groups.values() for arm in group]


def _on(arm: Arm, amounts: tuple[int, ...]) -> dict[int | None, Arm]:
    """An arm on so many sequences of each of its targets; None is all, and comes last."""
    return {amount: replace(arm, sequences=amount) for amount in (*amounts, None)}


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
        backbone = 0 if self.budget.shared_backbone else None  # of all seeds that of the first
        return [ModeRun(self.name, seed, backbone) for seed in range(self.seeds)]

    @property
    def arms(self) -> list[Arm]:
        return [BACKBONE, *Arms(self.budget).every]

    def own_options(self) -> list[str]:
        return ["--targets", ",".join(self.targets), "--retention", self.retention]

    def names(self) -> list[str]:
        backbones = [run for run in self.runs if run.of_backbone == run]
        made = [run.mixture(arm) for run in self.runs for arm in Arms(self.budget).every]
        return [*(name for run in backbones for name in (run.seed_model, run.backbone)), *made]
