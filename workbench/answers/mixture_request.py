"""One request to a mixture or an expert. It changes nothing that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from workbench.answers.base import JsonObject


class RequestChanges(TypedDict, total=False):
    """How a request differs from the stored model, as fields of an API request; the others are left out."""

    active: list[str]
    weights: dict[str, float]
    prior: str
    gate: JsonObject  # fields of the gate's config that differ
    parts: dict[str, Sequence[str]]


@dataclass(frozen=True)
class MixtureRequest:
    """A model with the experts, weights, gate and parts for one request. Omitted fields keep their stored values."""

    model: str  # name of a mixture or an expert
    active: Sequence[str] | None = None  # active experts; None: those that are active in the mixture
    weights: Mapping[str, float] | None = None  # by expert; the weight of others is 0
    gate: Mapping[str, Any] = field(default_factory=dict)  # fields of GateConfig that differ
    prior: str | None = None  # name of a stored prior in the place of weights
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by MoDE expert: the parts that are active

    def changes(self) -> RequestChanges:
        """The differences from the stored model, as the fields of an API request."""
        changes = RequestChanges()
        if self.active is not None:
            changes["active"] = list(self.active)
        if self.weights is not None:
            changes["weights"] = dict(self.weights)
        if self.prior is not None:
            changes["prior"] = self.prior
        if self.gate:
            changes["gate"] = dict(self.gate)
        if self.parts:
            changes["parts"] = dict(self.parts)
        return changes
