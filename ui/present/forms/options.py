"""Options of the command line for the fields of a spec: their names, a command line of them, and a spec of them.

Two groups of a spec may have a field of one name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from pydantic_core import PydanticUndefined

from workbench.errors import BadSpecError, Complaint
from workbench.formatting.shell_command import shell_command
from workbench.specs.base import Sane, Spec


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
    position = [name for name, _ in groups_of(spec)].index(group)
    return f"{group}_{knob}" if any(knob in later for later in names[position + 1 :]) else knob


def command_line(
    command: str, spec: type[Spec], arguments: Sequence[str], answers: Mapping[tuple[str, ...], Any]
) -> str:
    """`workbench train joint NAME --steps 60 …` from the answers that differ from their defaults.

    `arguments` are the fields that go without a flag, in order.
    """
    words = [str(answers[name,]) for name in arguments if answers.get((name,))]
    flags = [
        flag
        for path, value in answers.items()
        if path[0] not in arguments
        for flag in _flag(option_of(spec, *path) if len(path) == 2 else path[0], value)
    ]
    return shell_command(*command.split(), *words, *flags)


def _flag(option: str, value: Any) -> Iterator[str]:
    name = option.removeprefix("num_").replace("_", "-")
    if isinstance(value, bool):
        yield f"--{name}" if value else f"--no-{name}"
    elif value not in (None, "", [], {}):
        yield f"--{name}"
        is_json = isinstance(value, dict)
        yield ",".join(map(str, value)) if isinstance(value, list) else json.dumps(value) if is_json else f"{value}"


def spec_of_options(spec: type[Sane], values: Mapping[str, Any]) -> Any:
    """A spec with these values; the others keep their defaults. The knobs of its configs are also options.

    Raises BadSpecError with every complaint, also about unknown names; complaints name options, not fields.
    """
    try:
        return _parse(spec, values)
    except BadSpecError as bad:
        raise BadSpecError([_in_options(spec, one) for one in bad.given], bad.next_step) from None


def _in_options(spec: type[Sane], complaint: str | Complaint) -> str | Complaint:
    if isinstance(complaint, str) or not complaint.field:
        return complaint
    return Complaint(complaint.reason, (option_of_path(spec, complaint.field),))


def _parse(spec: type[Sane], values: Mapping[str, Any]) -> Any:
    from workbench.kinds.kind import parse_as, parse_spec

    content = dict(values)
    for name, group in groups_of(spec):
        # The spec's default, not that of the config class: a new expert has a tenth of the usual learning rate.
        defaults = asdict(spec.model_fields[name].get_default(call_default_factory=True))
        options = {field.name: option_of(spec, name, field.name) for field in fields(group)}
        given = {knob: content.pop(option) for knob, option in options.items() if option in content}
        config = content.get(name, {})
        content[name] = defaults | dict(config) | given if isinstance(config, Mapping) else config
    if "kind" not in spec.model_fields:  # the spec of several jobs
        return parse_as(spec, content)
    return parse_spec({**content, "kind": spec.model_fields["kind"].default})
