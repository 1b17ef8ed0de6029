"""The gate of a request: another one, or changes to that of the mixture, by the gates that are installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_type_hints

from pydantic import Discriminator, Field, Tag, create_model

from engine.mixing.gate_type import GateType, gate_types
from workbench.requests.body import RequestBody


class GateChange(RequestBody):
    """Settings of a gate; one that is left out stays as it is."""

    def changes(self) -> dict[str, Any]:
        """The fields that were given, null included: it clears."""
        return self.model_dump(exclude_unset=True)


def _setting(name: str, gates: Sequence[GateType]) -> Any:
    """A setting of gates as a field that may be left out; only where null is a value of it may it be null."""
    kinds = {}
    for gate in gates:
        field = next(one for one in fields(gate.config) if one.name == name)
        bounds = {mark: value for mark, value in field.metadata.items() if mark != "description"}
        kinds[str((field.type, bounds))] = Annotated[get_type_hints(gate.config)[name], Field(**bounds)]
    return Union[tuple(kinds.values())], Field(None, description=field.metadata["description"])  # noqa: UP007


def _change_model(gate: GateType) -> type[GateChange]:
    """The settings of one gate, with its kind."""
    kind: Any = (Literal[gate.name], Field(description=f"Weights come about {gate.sentence}."))
    settings = {name: _setting(name, [gate]) for name in gate.settings}
    model = create_model(
        gate.config.__name__.replace("Config", "Change"),
        __base__=GateChange,
        __doc__=f"The gate “{gate.title}”: settings that are left out stay as they are in the mixture.",
        kind=kind,
        **settings,
    )
    return model


def _changes_model(gates: Mapping[str, GateType]) -> type[GateChange]:
    """Settings of the gate that the mixture has, whichever it is."""
    names = dict.fromkeys(name for gate in gates.values() for name in gate.settings)
    having = {name: [gate for gate in gates.values() if name in gate.settings] for name in names}
    settings = {name: _setting(name, some) for name, some in having.items()}
    sentence = "Settings of the gate that the mixture has."
    return create_model("OwnGateChange", __base__=GateChange, __doc__=sentence, **settings)


def _gate_form(value: Any) -> str:
    """Which form of `gate` a value has: a name, the settings of one gate, or changes to the mixture's own."""
    if isinstance(value, str):
        return "name"
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return "changes" if kind is None else str(kind)


if TYPE_CHECKING:
    AnyGateChange = str | GateChange
else:
    AnyGateChange = Annotated[
        Union[
            Annotated[Literal[tuple(gate_types())], Tag("name")],
            Annotated[_changes_model(gate_types()), Tag("changes")],
            *(Annotated[_change_model(gate), Tag(gate.name)] for gate in gate_types().values()),
        ],
        Discriminator(
            _gate_form,
            custom_error_type="unknown_gate",
            custom_error_message=f"the gate must be one of {', '.join(gate_types())}",
        ),
    ]


def gate_changes(gate: AnyGateChange | None) -> dict[str, Any]:
    """The settings that a gate in a request names, or changes."""
    if gate is None:
        return {}
    return {"kind": gate} if isinstance(gate, str) else gate.changes()
