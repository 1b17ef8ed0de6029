"""What a gate is to everything but its arithmetic: a name, sentences, settings, and how to build it.

A gate is one module of `engine.mixing.gates`, or an entry point of the group `expert_workbench.gates`, that holds a
config and a `GateType`. The command line, forms, API and stored mixtures follow from these two. Nothing here imports
torch: `build` imports the gate's arithmetic when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from engine.config import MOST, Checked, knob
from engine.plugins import BadPluginError

if TYPE_CHECKING:
    from engine.mixing.base import Gate


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
        incomplete = [one.name for one in fields(self.config) if one.default is MISSING or not _is_described(one)]
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


def _is_described(field: Any) -> bool:
    return field.name == "kind" or bool(field.metadata.get("description"))
