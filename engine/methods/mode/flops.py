"""FLOPs of a MoDE model, counted as in `engine/models/flops.py`: matrix products, with sums and norms left out.

What is frozen has no gradients of its own, but a loss must find its way back through it to whatever learns below: to
the first block's experts and gate, and never into the first block's part of the backbone.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.methods.mode.config import ModeConfig
from engine.methods.parts.method import Learning
from engine.models import flops
from engine.models.flops import Shape


def forward_flops(shape: Shape, context: int, experts: Sequence[ModeConfig]) -> int:
    """Operations per token of the backbone and its active experts over a context of so many tokens."""
    layer = shape.projections + shape.ffn + shape.scores(context)
    added = sum(one.num_blocks * (one.expert_layers * layer + _gate(shape)) for one in experts)
    return flops.forward_flops(shape, context) + added


def training_flops(shape: Shape, context: int, experts: Sequence[ModeConfig], learning: Learning = "experts") -> int:
    """Operations per token trained on, forward and backward; all active experts learn, or only their gates."""
    back = shape.projections + shape.ffn + 2 * shape.scores(context)  # through a layer, without its weights
    num_blocks = experts[0].num_blocks
    total = forward_flops(shape, context, experts) + shape.ends
    total += (shape.num_layers - -(-shape.num_layers // num_blocks)) * back  # the first block is the largest
    for expert in experts:
        total += (num_blocks - 1) * expert.expert_layers * back + (2 * num_blocks - 1) * _gate(shape)
        if learning == "experts":
            own = num_blocks * expert.expert_layers * (shape.projections + shape.ffn)
            total += own + expert.expert_layers * back  # also in the first block: its norms come before its maps
    return total


def _gate(shape: Shape) -> int:
    return 2 * shape.width
