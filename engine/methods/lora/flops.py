"""Operations of training adapters alone, counted as in `engine/models/flops.py`."""

from __future__ import annotations

from engine.config import LoraConfig
from engine.models.flops import Shape, forward_flops


def training_flops(shape: Shape, context: int, expert_size: int) -> int:
    """Per token trained on: the loss goes back to the first adapter; at most its first maps cost less than counted.

    Of token vectors more is counted than computed: a token reads one column of their first factor.
    """
    first = shape.ffn + 2 * shape.scores(context) + 2 * shape.width * shape.attention_width  # up to the values
    above = (shape.num_layers - 1) * shape.through_layer(context)
    return forward_flops(shape, context) + above + first + shape.ends + 3 * 2 * expert_size


def adapter_size(shape: Shape, config: LoraConfig) -> int:
    """Parameters of an adapter: the rank times inputs and outputs of each map."""
    attention = 2 * (shape.width + shape.attention_width) + 2 * (shape.width + shape.key_width)
    ffn = shape.ffn_maps * (shape.width + shape.ffn_width)
    sizes = {"attention": attention, "ffn": ffn, "all": attention + ffn}
    of_embeddings = shape.vocab_size + shape.embedding_width if config.embeddings else 0
    return config.rank * (shape.num_layers * sizes[config.targets] + of_embeddings)
