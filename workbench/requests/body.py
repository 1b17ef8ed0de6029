"""What all request bodies share: unknown fields are refused, and null may mean that a field was left out.

How much a body holds is looked at before its fields are: thousands of faults would take longer than an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_type_hints

from pydantic import ConfigDict, Discriminator, Field, Tag, create_model, model_validator

from engine.mixing.gate_type import GateType, gate_types
from workbench.specs.base import Sane

MAX_NAMED = 1024  # experts of one request, or parts of one expert
MAX_TEXT = 4096  # characters of a text other than a prompt, such as a name
MAX_ITEMS = 4096  # of one list or object
MAX_VALUES = 65_536  # of a body: texts, numbers, lists and objects together
_BOUNDED = ("prompt", "spec", "stop")  # by bounds of their own
MAX_FIELDS = 256  # of an object whose fields are known


class FieldError(ValueError):
    """What is wrong with a field, given the others."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


Names = Annotated[list[str], Field(max_length=MAX_NAMED)]


class RequestBody(Sane):
    """Refuses unknown fields and unpaired surrogates: pydantic checks text only where it has a bound.

    `hints` are fields of known clients that ask a server to be quicker, and change nothing in an answer: they may be
    there.
    """

    model_config = ConfigDict(extra="forbid", str_max_length=MAX_TEXT)
    hints: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _within_bounds(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if len(data) > MAX_FIELDS:
            raise ValueError(f"an object must have at most {MAX_FIELDS} fields, but one has {len(data):,}")
        require_few_values(data)
        return {name: value for name, value in data.items() if name not in cls.hints} if cls.hints else data


def require_few_values(data: Mapping[str, Any]) -> None:
    """Raises ValueError for a body that holds more values than any request needs; only its containers are walked."""
    left, number = [value for name, value in data.items() if name not in _BOUNDED], len(data)
    while left:
        value = left.pop()
        if isinstance(value, dict | list):
            number += len(value)
            if len(value) > MAX_ITEMS or number > MAX_VALUES:
                raise ValueError(
                    f"a request must hold at most {MAX_ITEMS:,} values in a list or object, and {MAX_VALUES:,} in all"
                )
            inner = value.values() if isinstance(value, dict) else value
            left += [one for one in inner if isinstance(one, dict | list)]


class Nullable(RequestBody):
    """Null means that a field was left out."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in data.items() if value is not None or name not in optional}


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
