"""DEMix layers (Gururangan et al. 2021, §3)."""

from __future__ import annotations

from engine.config import DemixConfig
from engine.methods.rows import RowMethod
from engine.models.flops import Shape, forward_flops


def training_flops(shape: Shape, context: int, expert_size: int = 0) -> int:
    """Per token trained on: the loss goes back to the first network that learns, through everything above it.

    `expert_size` are the parameters of an expert, which say in how many layers it has networks; 0: in all. Where
    several choices of layers have as many, the one whose first network is lowest is counted.
    """
    one_layer = shape.ffn // 2  # two operations for each parameter; biases are too few to change the number
    learning = min(shape.num_layers, max(1, round(expert_size / one_layer))) if expert_size else shape.num_layers
    first_layer = shape.num_layers // (learning + 1) + 1  # the least k for which every k-th layer makes so many
    above = (shape.num_layers - first_layer) * shape.through_layer(context)
    first = 2 * shape.width * shape.ffn_width * shape.ffn_active  # only its last map: nothing before it learns
    return forward_flops(shape, context) + above + first + shape.ends + learning * shape.ffn


METHOD = RowMethod(
    name="demix",
    title="DEMix",
    sentence="each domain has an expert: feed-forward networks of its own",
    paper="Gururangan et al. 2021, §3",
    imports="networks",
    in_place_of_base=True,
    config=DemixConfig,
    experts_in="ffn",
    placement="engine.methods.demix.placement:FeedForward",
    frozen_flops=training_flops,
)
