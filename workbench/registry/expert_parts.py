"""The parts of experts, as the pages show them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, JsonValue
from sqlalchemy.orm import Session

from engine.methods.parts.method import get_parts_method, part_sizes
from workbench.answers.base import Answer
from workbench.registry.experts import expert_row
from workbench.schema.composition import parts_together
from workbench.schema.tables import Expert
from workbench.store.storage import Storage


class ExpertPart(Answer):
    """A part of an expert."""

    name: str
    domains: list[str] = Field(description="Domains that it was trained on.")
    origin: str | None = Field(description="Name of the expert that it was trained as; None if that is deleted.")
    shape: dict[str, JsonValue] = Field(description="What its method says of its config.")
    num_parameters: int


def part_names(session: Session, experts: Sequence[str]) -> list[str]:
    """The names of these experts' parts in a composition, in order."""
    return [part.name for part in parts_together([expert_row(session, name) for name in experts])]


def parts_of(session: Session, storage: Storage, expert: str) -> list[ExpertPart]:
    """The parts of an expert that has some, in their order."""
    row = expert_row(session, expert)
    sizes = part_sizes(storage.path(row.artifact_id))
    method = get_parts_method(row.method)
    parts = []
    for part in row.config["parts"]:
        origin = session.get(Expert, part["of"] or row.id)
        parts.append(
            ExpertPart(
                name=part["name"],
                domains=part["domains"],
                origin=origin.name if origin else None,
                shape=method.describe_part(method.config(**part["shape"])),
                num_parameters=sizes[part["name"]],
            )
        )
    return parts
