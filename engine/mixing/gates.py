"""The one place that chooses a gate by name."""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import GateConfig
from engine.mixing.base import Gate
from engine.mixing.fixed import FixedGate
from engine.mixing.posterior import PosteriorGate, UpdatingGate


def make_gate(config: GateConfig, weights: Sequence[float]) -> Gate:
    """The gate of a config; `weights` is its prior, or the fixed weights themselves."""
    if config.kind == "fixed":
        return FixedGate(weights, config.top_k)
    if config.kind == "updating":
        return UpdatingGate(
            weights, config.evidence, config.top_k,
            newest_weight=config.newest_weight, update_every=config.update_every,
        )  # fmt: skip
    return PosteriorGate(weights, config.evidence, config.top_k)
