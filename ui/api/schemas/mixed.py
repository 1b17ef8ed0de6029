"""Which experts of a model take part in a request, and how they are weighed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_type_hints

from pydantic import Discriminator, Field, Tag, create_model, model_validator

from engine.mixing.gate_registry import gate_types
from engine.mixing.gate_type import GateType
from ui.api.schemas.base import MAX_NAMED, FieldError, Names, RequestBody
from ui.present.forms.option_help import OPTION_HELP
from workbench.mixture_request import MixtureRequest

PARTS = "active parts of an expert of MoDE; left out: all of them; empty: its backbone alone."


class ExpertWeight(RequestBody):
    """An expert that takes part, by its name."""

    id: str = Field(description="Name of an expert of the mixture.")
    weight: float = Field(1.0, ge=0, allow_inf_nan=False, description="Its prior (or fixed) weight.")
    parts: Names | None = Field(None, description=f"The {PARTS}")


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


class Mixed(RequestBody):
    """Which experts of a model take part, and how they are weighed; all of it for this request only."""

    experts: list[ExpertWeight] | None = Field(
        None, max_length=MAX_NAMED, description="Experts that take part, with their weights."
    )
    active: Names | None = Field(None, description="Experts that take part, with the mixture's own weights.")
    parts: dict[str, Names] | None = Field(None, max_length=MAX_NAMED, description=f"By expert: the {PARTS}")
    gate: AnyGateChange | None = Field(None, description="Another gate, or changes to the mixture's own.")
    top_k_experts: int | None = Field(None, ge=1, description=OPTION_HELP["top_k"])
    prior: str | None = Field(None, description="Name of a stored prior that weighs the experts taking part.")

    @model_validator(mode="after")
    def _one_choice(self) -> Mixed:
        if self.experts is not None and self.active is not None:
            raise FieldError("active", "give experts or active, not both")
        times = Counter(one.id for one in self.experts or ())
        if twice := sorted(name for name, number in times.items() if number > 1):
            raise FieldError("experts", f"experts must name each once, but name {', '.join(twice)} more often")
        if self.experts is not None and self.prior is not None:
            raise FieldError("prior", "give experts with weights or a prior, not both")
        if self.experts is not None and self.parts is not None:
            raise FieldError("parts", "give parts within experts or beside active, not both")
        return self

    def to_request(self, model: str) -> MixtureRequest:
        """The request for the services."""
        gate = {"kind": self.gate} if isinstance(self.gate, str) else self.gate.changes() if self.gate else {}
        changes = {**gate, **({"top_k": self.top_k_experts} if self.top_k_experts else {})}
        if self.experts is None:
            return MixtureRequest(model, self.active, None, changes, self.prior, self.parts or {})
        parts = {one.id: one.parts for one in self.experts if one.parts is not None}
        weights = {one.id: one.weight for one in self.experts}
        return MixtureRequest(model, list(weights), weights, changes, parts=parts)
