"""Unpack an expert of another workbench."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, TypeAdapter, field_validator

from workbench.kinds.kind import Kind, Result, expert_link, named, nothing
from workbench.specs.base import LocalPath, Name, Spec

_NAME: TypeAdapter[str] = TypeAdapter(Name)


class UnpackExpert(Spec):
    """Unpack a file that another workbench packed: an expert, and its seed model where it is inside."""

    kind: Literal["unpack-expert"] = "unpack-expert"
    file: LocalPath = Field(min_length=1, description="File that another workbench packed.")
    name: str = Field("", description="Name of the expert; empty: the name that it was packed under.")

    @field_validator("name")
    @classmethod
    def _named(cls, value: str) -> str:
        return _NAME.validate_python(value) if value.strip() else ""


def _sentence(result: Result) -> str:
    seed = f", and the seed model {result['new_seed']}" if result["new_seed"] else ""
    return f"{result['expert']} is unpacked{seed}."


KIND = Kind(
    spec=UnpackExpert,
    title="Unpack expert",
    creates=lambda spec: named("expert", spec.name),
    requires=nothing,
    reads=lambda spec: spec.file,
    command="expert unpack FILE",
    sentence=_sentence,
    link=expert_link("See the expert"),
)
