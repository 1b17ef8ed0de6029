"""The settings of MoDE: division of the backbone, size of an expert, and initialization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import MOST_SEED, Checked, knob

Init = Literal["copy", "random"]
Start = Literal["backbone", "even"]


@dataclass(frozen=True)
class ModeConfig(Checked):
    """The shape and initialization of an expert. Defaults are the paper's (§4.1)."""

    num_blocks: int = knob(
        3,
        "Blocks that the backbone's layers are divided into (paper: 3).",
        title="Blocks of the backbone",
        ge=1,
        le=200,
    )
    expert_layers: int = knob(
        2,
        "Transformer layers of the expert in each block (paper: 2); if the block has fewer layers, some start as "
        "copies of the same layer.",
        title="Layers of the expert in each block",
        ge=1,
        le=200,
    )
    init: Init = knob(
        "copy",
        "What an expert's layers start as: copy: the last layers of their block; random.",
        title="Layers start as",
    )
    start: Start = knob(
        "backbone",
        "Where gates start: backbone: the model is the backbone (the expert closed; a copy of its whole block "
        "at an equal weight); even: all equal.",
        title="Gates start",
    )
    seed: int = knob(0, "Seed of layers that start at random.", ge=0, le=MOST_SEED)
