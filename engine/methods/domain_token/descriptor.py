"""+Domain-Token, a baseline of DEMix (Gururangan et al. 2021, §4.2): every weight is shared but one vector."""

from __future__ import annotations

from engine.methods.domain_token.flops import training_flops
from engine.methods.rows import RowMethod

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
