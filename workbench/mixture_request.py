"""One request to a mixture or an expert. It changes nothing that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MixtureRequest:
    """A model with the experts, weights, gate and parts for one request. Omitted fields keep their stored values."""

    model: str  # name of a mixture or an expert
    active: Sequence[str] | None = None  # active experts; None: those that are active in the mixture
    weights: Mapping[str, float] | None = None  # by expert; the weight of others is 0
    gate: Mapping[str, Any] = field(default_factory=dict)  # fields of GateConfig that differ
    prior: str | None = None  # name of a stored prior in the place of weights
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by MoDE expert: the parts that are active

    def changes(self) -> dict[str, Any]:
        """The differences from the stored model, as the fields of an API request."""
        weights = None if self.weights is None else dict(self.weights)
        active = None if self.active is None else list(self.active)
        fields = {"active": active, "weights": weights, "prior": self.prior}
        given = {name: value for name, value in fields.items() if value is not None}
        named = {name: dict(value) for name, value in (("gate", self.gate), ("parts", self.parts)) if value}
        return given | named
