"""Gates in storage and requests: `{"kind": NAME, ...}` with the settings of that gate only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BeforeValidator, Field

from engine.errors import MixtureError
from engine.mixing.evidence import change_evidence
from engine.mixing.gate_type import GateConfig, gate_type, gate_types
from engine.mixing.gates.posterior import PosteriorGateConfig


def default_gate() -> GateConfig:
    """The gate of a new mixture."""
    return PosteriorGateConfig()


def require_settings(kind: str, names: Collection[str]) -> None:
    """Raises MixtureError for a gate that does not exist, or a setting that it does not have."""
    settings = gate_type(kind).settings
    if unknown := [name for name in names if name not in settings and name != "kind"]:
        raise MixtureError(
            f"The gate “{kind}” has no setting {', '.join(f'“{name}”' for name in unknown)}. It has: "
            f"{', '.join(settings)}.",
            "Leave it out, or choose another gate.",
        )


def _complete(value: Any) -> Any:
    """Adds the default kind to JSON; refuses unknown settings with our own message."""
    if not isinstance(value, Mapping):
        return value
    full = {"kind": default_gate().kind, **value}
    try:
        require_settings(str(full["kind"]), full)
    except MixtureError as error:
        raise ValueError(error.problem) from None
    return full


if TYPE_CHECKING:
    AnyGate = GateConfig
else:
    AnyGate = Annotated[
        Union[tuple(one.config for one in gate_types().values())],  # noqa: UP007
        Field(discriminator="kind"),
        BeforeValidator(_complete),
    ]


def load_gate(data: Mapping[str, Any]) -> GateConfig:
    """The config of a stored gate; raises MixtureError for a gate that is not installed or has other settings."""
    kind = str(data.get("kind", default_gate().kind))
    require_settings(kind, data)
    return gate_type(kind).config(**{**data, "kind": kind})


def dump_gate(config: GateConfig) -> dict[str, Any]:
    """A gate's config as stored JSON."""
    return asdict(config)


def upgraded_gate(data: Mapping[str, Any]) -> dict[str, Any]:
    """A stored gate in the current format. Until version 0007 each was stored with the settings of all gates."""
    kind = data.get("kind", default_gate().kind)
    if kind not in gate_types():
        return dict(data)
    settings = {name: value for name, value in data.items() if name in gate_type(kind).settings}
    return dump_gate(load_gate({"kind": kind, **settings}))


def changed_gate(before: GateConfig, changes: Mapping[str, Any]) -> GateConfig:
    """A gate with changed settings. Another `kind` keeps the settings that both gates have.

    A decay or a power of the evidence may change on its own: `{"evidence": {"power": 0.3}}`.
    Raises MixtureError for a setting that the gate does not have.
    """
    kind = str(changes.get("kind", before.kind))
    require_settings(kind, changes)
    kept = {name: value for name, value in asdict(before).items() if name in gate_type(kind).settings}
    if "evidence" in changes and (evidence := getattr(before, "evidence", None)) is not None:
        changes = {**changes, "evidence": change_evidence(evidence, changes["evidence"])}
    return load_gate({**kept, **changes, "kind": kind})
