"""The command-line option names of a spec's fields: two groups may have a field of one name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic_core import PydanticUndefined

from workbench.specs.base import Sane


def groups_of(spec: type[Sane]) -> Iterator[tuple[str, Any]]:
    """The fields of a spec that are knobs of the engine, each with its config."""
    for name, field in spec.model_fields.items():
        if is_dataclass(field.annotation) and field.default is PydanticUndefined:
            yield name, field.annotation


def option_of_path(spec: type[Sane], path: Sequence[str]) -> str:
    """The name of the option that gives the field at a path of a spec, or the first part of a longer path."""
    group = dict(groups_of(spec)).get(path[0])
    if group is not None and len(path) > 1 and path[1] in {one.name for one in fields(group)}:
        return option_of(spec, path[0], path[1])
    return path[0]


def option_of(spec: type[Sane], group: str, knob: str) -> str:
    """The name of a knob's option: its own, after its group's where a later group has a knob of that name."""
    names = [{one.name for one in fields(config)} for _, config in groups_of(spec)]
    place = [name for name, _ in groups_of(spec)].index(group)
    return f"{group}_{knob}" if any(knob in later for later in names[place + 1 :]) else knob
