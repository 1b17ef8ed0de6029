"""A method from another package, with a model of its own: small networks above a frozen seed, weighed by a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import Checked, knob
from engine.methods.parts.method import Learning, PartsMethod
from engine.models.flops import Shape, forward_flops


@dataclass(frozen=True)
class HeadConfig(Checked):
    """The size of a head."""

    size: int = knob(8, "Inner size of a head.", title="Size", ge=1, le=4096)
    seed: int = knob(0, "Seed of its random weights.", ge=0, le=2**32 - 1)


def count_forward(shape: Shape, context: int, heads: Sequence[HeadConfig]) -> int:
    """Operations per token: those of the seed, and of each head's two maps and gate."""
    return forward_flops(shape, context) + sum(2 * shape.width * (2 * head.size + 1) for head in heads)


def count_training(shape: Shape, context: int, heads: Sequence[HeadConfig], learning: Learning) -> int:
    """The same with the backward pass, which ends at the heads."""
    sizes = sum(head.size for head in heads) if learning == "experts" else 0
    return count_forward(shape, context, heads) + shape.ends + 8 * shape.width * sizes


METHOD = PartsMethod(
    name="heads",
    title="Heads",
    sentence="each domain has a small network above the seed, and a gate",
    paper="none",
    expert_words="small networks and gates",
    shared_words="the seed model beneath them",
    no_decoder_because="is a network above one",
    config=HeadConfig,
    model="toy_heads.model:HeadsModel",
    count_forward=count_forward,
    count_training=count_training,
)
