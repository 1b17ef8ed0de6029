"""An expert is a vector that is added to what the last map of each feed-forward network gives, times a strength."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import Checked, knob
from engine.methods.rows import RowMethod
from engine.models.flops import Shape, forward_flops


@dataclass(frozen=True)
class ToyConfig(Checked):
    """The settings of the method."""

    strength: float = knob(1.0, "Toy: factor of the learned vectors.", gt=0, le=10)


def training_flops(shape: Shape, context: int, expert_size: int) -> int:
    """Per token: forward, and back through every layer."""
    return forward_flops(shape, context) + shape.num_layers * shape.through_layer(context) + 2 * expert_size


METHOD = RowMethod(
    name="toy",
    title="Toy",
    sentence="each domain has only a vector of its own in each layer",
    paper="none",
    expert_words="learned vectors",
    shared_words="the seed model beneath them",
    base_is_frozen=True,
    no_decoder_because="is a set of vectors",
    config=ToyConfig,
    experts_in="toy",
    placement="toy_method.placement:Biases",
    frozen_flops=training_flops,
    adds_to_base=True,
)
