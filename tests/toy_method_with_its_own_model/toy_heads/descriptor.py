"""A method from another package, with a model of its own: small networks above a frozen seed, weighed by a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.config import Checked, knob
from engine.methods.parts.method import Learning, PartsMethod
from engine.models.flops import Shape, forward_flops

if TYPE_CHECKING:
    from toy_heads.model import HeadsModel


@dataclass(frozen=True)
class HeadConfig(Checked):
    """The size of a head."""

    size: int = knob(8, "Inner size of a head.", title="Size", ge=1, le=4096)
    seed: int = knob(0, "Seed of its random weights.", ge=0, le=2**32 - 1)


@dataclass(frozen=True, kw_only=True)
class Heads(PartsMethod):
    """Each domain trains a head; composed, several heads are the parts of one expert."""

    def new_model(self, lm: Any, config: HeadConfig) -> HeadsModel:
        from toy_heads.model import HeadsModel

        return HeadsModel(lm)

    def count_forward_flops(self, shape: Shape, context: int, parts: Sequence[HeadConfig]) -> int:
        return forward_flops(shape, context) + sum(2 * shape.width * (2 * one.size + 1) for one in parts)

    def count_training_flops(self, shape: Shape, context: int, parts: Sequence[HeadConfig], learning: Learning) -> int:
        maps = sum(2 * shape.width * (2 * one.size if learning == "experts" else 0) for one in parts)
        return self.count_forward_flops(shape, context, parts) + shape.ends + 2 * maps


METHOD = Heads(
    name="heads",
    title="Heads",
    sentence="each domain has a small network above the seed, and a gate",
    paper="none",
    expert_words="small networks and gates",
    shared_words="the seed model beneath them",
    no_decoder_because="is a network above one",
    config=HeadConfig,
)
