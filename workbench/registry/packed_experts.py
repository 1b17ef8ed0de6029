"""What a packed file says of its expert, of its base and of its seed model."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from workbench.answers.base import Answer
from workbench.errors import StorageError
from workbench.registry.experts import IMPORTED, domains_of, parts_of
from workbench.schema.tables import Expert
from workbench.specs.base import PUBLIC

_SHA256 = r"[0-9a-f]{64}"
_Text = Field(max_length=1000)


class PackedSeed(Answer):
    """The seed model of a packed expert. `source` names no folder of the machine that packed it."""

    name: str = _Text
    source: str = _Text
    sha256: str = Field(pattern=_SHA256)


class PackedExpert(Answer):
    """A packed expert, with its size and what it was trained with as they were stored; only people read those."""

    name: str = _Text
    method: str = _Text
    sha256: str = Field(pattern=_SHA256)
    base_sha256: str = Field(pattern=_SHA256)
    data_sha256: str = _Text
    num_parameters: int = Field(ge=0, le=2**63 - 1)
    domains: list[str] = Field(max_length=10_000)
    has_parents: bool = True  # it was made of other experts, whose training text is not packed
    config: dict[str, Any]
    metrics: dict[str, Any]
    code_version: str = _Text
    created_at: float
    seed: PackedSeed | None = None


def describe_packed(row: Expert) -> PackedExpert:
    """The description of an expert for a packed file."""
    seed, source = row.seed, row.seed.source if row.seed else ""
    source = source if source.startswith(PUBLIC) else source.partition(":")[0]
    return PackedExpert.from_fields(
        row,
        sha256=row.artifact.sha256,
        base_sha256=row.base.sha256,
        domains=domains_of(row),
        has_parents=bool(row.parent_id or parts_of(row)),
        config={name: value for name, value in row.config.items() if name != IMPORTED},
        seed=seed and PackedSeed.from_fields(seed, source=source, sha256=seed.artifact.sha256),
    )


def read_packed(about: dict[str, Any]) -> PackedExpert:
    """The description in a packed file; raises StorageError if it is not one."""
    try:
        return PackedExpert.model_validate(about)
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        raise StorageError(
            f"The packed file does not describe an expert: “{field[:100]}” is missing or wrong.",
            "Get the file again from whoever packed it.",
        ) from None
