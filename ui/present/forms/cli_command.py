"""The command line that submits the same job as a form; a test runs it through the CLI's own parser."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ui.present.forms.option_names import option_of
from workbench.formatting.shell_command import shell_command
from workbench.specs.base import Spec


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
        yield ",".join(map(str, value)) if isinstance(value, list) else _word(value)


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else f"{value}"
