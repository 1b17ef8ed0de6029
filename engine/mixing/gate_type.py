"""What a gate is to everything but its arithmetic: a name, sentences, settings, and how to build it.

A gate is one module of `engine.mixing.gates`, or an entry point of the group `expert_workbench.gates`, that holds a
config and a `GateType`. The command line, forms, API and stored mixtures follow from these two. Nothing here imports
torch: `build` imports the gate's arithmetic when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from engine.config import MOST, Checked, knob
from engine.errors import MixtureError
from engine.plugins import BadPluginError, find_plugins, load_object

if TYPE_CHECKING:
    from engine.mixing.base import Gate
    from engine.mixing.cluster import Routing


@dataclass(frozen=True)
class GateConfig(Checked):
    """The settings that every gate has. Each gate's config names its `kind` and adds its own fields.

    Stored as `asdict` gives it: `{"kind": "posterior", "top_k": null, "evidence": "prefix"}`.
    """

    kind: str
    top_k: int | None = knob(
        None,
        "Keep only this many experts at each token; empty keeps all.",
        title="Experts at each token (top k)",
        ge=1,
        le=MOST,
    )


@dataclass(frozen=True)
class ClusteringGateConfig(GateConfig):
    """The settings of a gate that needs the clusters of experts and the distances of the text to them."""

    clustering: str | None = knob(None, "The clustering whose clusters the experts were trained on.")


Build = Callable[[Any, Sequence[float], Any], "Gate"]  # of the gate's own config, weights, `Routing | None`


def builder(path: str) -> Build:
    """Builds the gate of a class, `module:Class`, which is imported then; its arguments are named like the settings."""

    def build(config: GateConfig, weights: Sequence[float], routing: Routing | None) -> Gate:
        settings = {one.name: getattr(config, one.name) for one in fields(config)}
        del settings["kind"]
        if isinstance(config, ClusteringGateConfig):
            settings["routing"] = routing
            del settings["clustering"]
        gate: Gate = load_object(path)(weights, **settings)
        return gate

    return build


@dataclass(frozen=True)
class GateType:
    """A kind of gate. `build(config, weights, routing)` makes one; `weights` is its prior, one for each expert.

    `routing` holds the cluster of each expert; it is None unless `config` is a `ClusteringGateConfig`.
    """

    title: str  # in forms
    sentence: str  # how weights come about, without a full stop
    config: type[GateConfig]
    build: Build
    is_constant: bool = False  # whether its weights are the same for every text
    weighs_unclustered: bool = False  # of a gate that needs a clustering: also experts that are of no cluster

    def __post_init__(self) -> None:
        described = {"kind"} | {one.name for one in fields(self.config) if one.metadata.get("description")}
        incomplete = [one.name for one in fields(self.config) if one.default is MISSING or one.name not in described]
        if incomplete:
            raise BadPluginError(
                f"{self.config.__name__} has settings without a default or a description: {', '.join(incomplete)}.",
                "Give `kind` a default, and make every other field with `engine.config.knob`.",
            )

    @property
    def name(self) -> str:
        """The `kind` of its config."""
        return next(str(one.default) for one in fields(self.config) if one.name == "kind")

    @property
    def needs_clustering(self) -> bool:
        """Whether its config must name a clustering."""
        return issubclass(self.config, ClusteringGateConfig)

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of its settings, without `kind`."""
        return tuple(one.name for one in fields(self.config) if one.name != "kind")


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
