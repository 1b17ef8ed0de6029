"""A mixture of experts in each layer, made of the seed's feed-forward networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.config import MoeConfig
from engine.methods.demix.placement import FeedForward
from engine.methods.moe.upcycle import upcycle
from engine.models.multi_expert import MultiExpertModel


class Upcycled(FeedForward):
    """Experts placed as DEMix's, but each network is a mixture of experts with a router."""

    def build(self, lm: Any, keys: Sequence[str], config: MoeConfig, seed: int = 0) -> MultiExpertModel:
        return MultiExpertModel(upcycle(lm, config, seed), keys, self)
