"""The gates there are, and the gate of a config. Imports no torch before a gate is built."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from engine.errors import MixtureError
from engine.mixing.gate_type import GateConfig, GateType
from engine.plugins import find_plugins

if TYPE_CHECKING:
    from engine.mixing.base import Gate
    from engine.mixing.cluster import Routing


@cache
def gate_types() -> dict[str, GateType]:
    """All gates by name. Raises BadPluginError."""
    return find_plugins("engine.mixing.gates", "expert_workbench.gates", "GATE", GateType, lambda one: one.name)


def gate_type(name: str) -> GateType:
    """The gate of this name; raises MixtureError with the names there are."""
    if name not in gate_types():
        raise MixtureError(
            f"There is no gate “{name}”. The gates are: {', '.join(gate_types())}.",
            "Choose one of these, or install the plug-in of that gate.",
        )
    return gate_types()[name]


def build_gate(config: GateConfig, weights: Sequence[float], routing: Routing | None = None) -> Gate:
    """The gate of a config. `weights` is its prior, or the fixed weights; `routing` the cluster of each expert.

    Raises MixtureError for a gate that needs a clustering where `routing` is None.
    """
    chosen = gate_type(config.kind)
    if chosen.needs_clustering and routing is None:
        raise MixtureError(
            f"The gate “{chosen.name}” needs the cluster of each expert.", "Name a clustering, or another gate."
        )
    return chosen.build(config, weights, routing)
