"""Compositions of experts with parts: which parts one gets, and why experts cannot be composed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from engine.methods.parts.method import backbone_of
from engine.methods.registry import method_of
from workbench.errors import BadSpecError
from workbench.schema.names import find_row, free_name
from workbench.schema.tables import Expert


@dataclass(frozen=True)
class StoredPart:
    """A part as the config of an expert's row stores it."""

    name: str
    domain: str | None
    domains: list[str]
    of: str
    shape: dict[str, Any]


@dataclass(frozen=True)
class ComposedPart:
    """A part of an expert, with a gate next to the backbone, first trained as an expert of its own."""

    name: str  # in the composition
    name_there: str  # in the source expert
    expert_id: str  # of the source expert
    domain: str | None  # of its first training; None if that was on several
    domains: tuple[str, ...]  # all that trained it, those of compositions included
    of: str  # id of the expert that it was first trained as
    shape: dict[str, Any]  # a config of its method

    def after_training_on(self, domains: Sequence[str]) -> StoredPart:
        """The part once these domains trained it as well."""
        known = list(dict.fromkeys([*self.domains, *domains]))
        return StoredPart(self.name, self.domain, known, self.of, self.shape)


def composition(rows: Sequence[Expert], without: Collection[str], is_trained: bool) -> list[ComposedPart]:
    """The parts of these experts in order, without those left out. A repeated name gets a number.

    Raises BadSpecError with every reason why they cannot be composed.
    """
    if complaints := _incompatible(rows):
        raise BadSpecError(complaints)
    parts = parts_together(rows)
    names = [part.name for part in parts]
    complaints = [
        f"There is no part “{name}” to leave out; there is: {', '.join(names)}."
        for name in without
        if name not in names
    ]
    left = [part for part in parts if part.name not in without]
    complaints += _too_few(rows, left, bool(without), is_trained)
    if complaints:
        raise BadSpecError(complaints)
    return left


def _too_few(rows: Sequence[Expert], left: Sequence[ComposedPart], is_less: bool, is_trained: bool) -> list[str]:
    if not left:
        return ["All parts are left out of the composition: leave fewer out."]
    if len(left) == 1 and (is_trained or not is_less):
        return [f"The composition has only one part, “{left[0].name}”: add an expert of another domain."]
    if len(rows) == 1 and not is_less and not is_trained:
        return [
            f"“{rows[0].name}” is composed already: add an expert, leave a part out, or give domains to train it on."
        ]
    return []


def parts_together(rows: Sequence[Expert]) -> list[ComposedPart]:
    """The parts of these experts in order. A repeated name gets a number."""
    parts: list[ComposedPart] = []
    for row in rows:
        for part in row.config["parts"]:
            name = free_name(part["name"], "-", {one.name for one in parts})
            first, domains = part["of"] or row.id, tuple(part["domains"])
            parts.append(ComposedPart(name, part["name"], row.id, part["domain"], domains, first, part["shape"]))
    return parts


_SAME_SEED = "train it from the same seed model"


def _incompatible(rows: Sequence[Expert]) -> list[str]:
    """The reasons why these experts cannot be composed with the first."""
    complaints = [
        f"“{row.name}” cannot be composed: experts of the method “{row.method}” have no parts."
        for row in rows
        if not method_of(row.method).has_parts
    ]
    if complaints:
        return complaints
    first = rows[0]
    for row in rows[1:]:
        if row.method != first.method:
            complaints.append(f"“{row.name}” is of another method than “{first.name}”: compose experts of one method.")
        elif row.tokenizer_sha256 != first.tokenizer_sha256:
            complaints.append(f"“{row.name}” has another tokenizer than “{first.name}”: {_SAME_SEED}.")
        elif row.base.sha256 != first.base.sha256:
            problem = f"“{row.name}” must be trained on the backbone of “{first.name}”, but is on another"
            complaints.append(f"{problem}: {_SAME_SEED}.")
        elif (own := backbone_of(row.method, row.config)) != (wanted := backbone_of(first.method, first.config)):
            complaints.append(f"“{row.name}” has {own}, “{first.name}” has {wanted}: train it again with as many.")
    return complaints


def composition_complaints(
    session: Session, experts: Sequence[str], without: Collection[str], is_trained: bool
) -> list[str]:
    """The reasons why a composition is impossible, from what the registry knows; none while experts are to come."""
    rows = [row for name in experts if (row := find_row(session, Expert, name)) is not None]
    if len(rows) < len(experts):
        return []
    try:
        composition(rows, without, is_trained)
    except BadSpecError as refusal:
        return refusal.complaints
    return []
