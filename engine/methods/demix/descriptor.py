"""DEMix layers (Gururangan et al. 2021, §3)."""

from __future__ import annotations

from engine.config import DemixConfig
from engine.methods.demix.flops import training_flops
from engine.methods.rows import RowMethod

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
