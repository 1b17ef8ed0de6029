"""+Domain-Token, a baseline of DEMix (Gururangan et al. 2021, §4.2): every weight is shared but one vector."""

from __future__ import annotations

from engine.methods.rows import RowMethod
from engine.models.flops import Shape, forward_flops


def training_flops(shape: Shape, context: int, expert_size: int = 0) -> int:
    """Per token trained on: the loss goes back through every layer."""
    del expert_size
    return forward_flops(shape, context) + shape.num_layers * shape.through_layer(context) + shape.ends


METHOD = RowMethod(
    name="domain-token",
    title="domain token",
    sentence="each domain has only a learned vector of its own, before the text",
    paper="Gururangan et al. 2021, §4.2",
    expert_words="one learned vector",
    shared_words="the whole model that reads it",
    no_decoder_because="is a vector before the text",
    experts_in="token",
    placement="engine.methods.domain_token.placement:BeforeText",
    frozen_flops=training_flops,
    extra_positions=1,
)
