"""Which experts of a model take part in a request, and how they are weighed."""

from __future__ import annotations

from collections import Counter

from pydantic import Field, model_validator

from ui.present.forms.option_help import OPTION_HELP
from workbench.answers.mixture_request import MixtureRequest
from workbench.requests.body import MAX_NAMED, AnyGateChange, FieldError, Names, RequestBody, gate_changes

PARTS = "active parts of an expert of MoDE; left out: all of them; empty: its backbone alone."


class ExpertWeight(RequestBody):
    """An expert that takes part, by its name."""

    id: str = Field(description="Name of an expert of the mixture.")
    weight: float = Field(1.0, ge=0, allow_inf_nan=False, description="Its prior (or fixed) weight.")
    parts: Names | None = Field(None, description=f"The {PARTS}")


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
        changes = {**gate_changes(self.gate), **({"top_k": self.top_k_experts} if self.top_k_experts else {})}
        if self.experts is None:
            return MixtureRequest(model, self.active, None, changes, self.prior, self.parts or {})
        parts = {one.id: one.parts for one in self.experts if one.parts is not None}
        weights = {one.id: one.weight for one in self.experts}
        return MixtureRequest(model, list(weights), weights, changes, parts=parts)
