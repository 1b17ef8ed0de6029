"""What one request asks of a mixture or an expert. It changes nothing that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MixtureRequest:
    """A model with the experts, weights, gate and parts for one request; what is left out stays as it is stored."""

    model: str  # name of a mixture or an expert
    active: Sequence[str] | None = None  # experts that take part; None: those that are on in the mixture
    weights: Mapping[str, float] | None = None  # by expert; what is not named weighs nothing
    gate: Mapping[str, Any] = field(default_factory=dict)  # fields of GateConfig that differ
    prior: str | None = None  # name of a stored prior in the place of weights
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by MoDE expert: the parts that are active

    def changes(self) -> dict[str, Any]:
        """What differs from what is stored, as the fields of a request to the API."""
        weights = None if self.weights is None else dict(self.weights)
        active = None if self.active is None else list(self.active)
        fields = {"active": active, "weights": weights, "prior": self.prior}
        given = {name: value for name, value in fields.items() if value is not None}
        named = {name: dict(value) for name, value in (("gate", self.gate), ("parts", self.parts)) if value}
        return given | named
