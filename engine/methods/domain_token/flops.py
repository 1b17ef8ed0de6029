"""Operations of training a vector before the text alone, counted as in `engine/models/flops.py`."""

from __future__ import annotations

from engine.models.flops import Shape, forward_flops


def training_flops(shape: Shape, context: int, expert_size: int = 0) -> int:
    """Per token trained on: the loss goes back through every layer."""
    del expert_size
    return forward_flops(shape, context) + shape.num_layers * shape.through_layer(context) + shape.ends
