"""Operations of training feed-forward networks alone, counted as in `engine/models/flops.py`."""

from __future__ import annotations

from engine.models.flops import Shape, forward_flops


def training_flops(shape: Shape, context: int, expert_size: int = 0) -> int:
    """Per token trained on: the loss goes back to the first feed-forward network, through everything above it."""
    del expert_size
    above = (shape.num_layers - 1) * shape.through_layer(context)
    first = 2 * shape.width * shape.ffn_width * shape.ffn_active  # its last map alone: nothing before it learns
    return forward_flops(shape, context) + above + first + shape.ends + shape.num_layers * shape.ffn
