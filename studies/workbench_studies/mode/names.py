"""The systems that a replication of MoDE compares, and their names in the registry.

An arm is one model: a way to adapt the backbone, and on what. Names derive from the replication's: `NAME-s0-composed`
is the mixture of the first seed that holds the composed model, its one expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.config import LoraConfig
from engine.methods.mode.config import ModeConfig
from workbench_studies.core.spec import Run

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
