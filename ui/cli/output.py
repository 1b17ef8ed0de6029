"""Printing: JSON for programs, tables and sentences for people.

Nothing else of the command line writes to the terminal (a test reads its modules), so that no name, path, note, log or
generated text reaches it with control characters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from engine.errors import Problem
from ui.present.next_step_text import next_step_text, problem_text
from ui.present.terminal import harmless, harmless_json
from workbench.formatting.number_format import DASH, MINUS, number

LONGEST_LINE = 100  # characters
_LONG = 1e12  # larger numbers are printed in scientific notation: a diverged model's perplexity has 305 digits


def print_json(value: Any) -> None:
    """Prints cards, lists and plain values as JSON on stdout; NaN and infinity become null."""
    from pydantic_core import to_json

    text = to_json(value, indent=2, inf_nan_mode="null").decode()
    sys.stdout.write(harmless_json(text) + "\n")
    sys.stdout.flush()  # at once: a program may wait for it


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Prints a table on stdout, numbers aligned to the right; without rows, the sentence `empty`."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    if not cells:
        say(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, title in enumerate(columns):
        numeric = all(isinstance(row[index], int | float | None) for row in cells)
        table.add_column(harmless(title), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(harmless(as_text(value))) for value in row))
    # A pipe has no width: wide enough that no line is wrapped.
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)


def print_rows(rows: Sequence[Mapping[str, Any]], *, empty: str) -> None:
    """Prints rows as a table whose columns are named by the rows' keys."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [name[:1].upper() + name[1:] for name in names]
    print_table(columns, [[row.get(name) for name in names] for row in rows], empty=empty)


def print_fields(values: dict[str, Any], indent: str = "") -> None:
    """Prints one line for each property; a nested property that does not fit in a line gets several."""
    width = max(map(len, values), default=0)
    for name, value in values.items():
        line = f"{indent}{name:<{width}}  {as_text(value)}"
        inner = _inner(value) if len(line) > LONGEST_LINE else {}
        say(f"{indent}{name}" if inner else line)
        print_fields(inner, indent + "  ")


def _inner(value: Any) -> dict[str, Any]:
    """The properties of a dict by name, or the items of a list by number; none for a plain value."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return {str(number): item for number, item in enumerate(value, 1)}
    return value if isinstance(value, dict) else {}


def say(sentence: str) -> None:
    """Prints a sentence on stdout."""
    print_text(sentence + "\n")


def say_each(*sentences: str) -> None:
    """Prints those sentences that are not empty, each on a line of stdout."""
    for sentence in filter(None, sentences):
        say(sentence)


def print_text(text: str) -> None:
    """Prints text on stdout as it is, without a line's end of its own, at once."""
    sys.stdout.write(harmless(text))
    sys.stdout.flush()


def print_painted(text: str) -> None:
    """Prints text of `Palette` on stdout at once: it holds our own colours and is harmless but for them."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_painted_note(sentence: str) -> None:
    """Prints a sentence with names of `Palette` on stderr."""
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


def print_note(sentence: str) -> None:
    """Prints a sentence on stderr, so that it does not mix with results."""
    print_painted_note(harmless(sentence))


def print_problem(problem: Problem, as_json: bool) -> None:
    """Prints the problem and the next step on one line of stderr, or as JSON on stdout."""
    if as_json:
        next_step = next_step_text(problem.next_step)
        print_json({"error": {"code": problem.error_code, "message": problem_text(problem), "next_step": next_step}})
    else:
        print_note(problem_text(problem))


def as_text(value: Any) -> str:
    """A value formatted for people."""
    if value is None or value == "":
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        is_plain = 0.01 <= abs(value) < _LONG or not value
        return number(value, 2) if is_plain else f"{value:,.3g}".replace("-", MINUS)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value)) or DASH
    if isinstance(value, dict):
        return ", ".join(f"{name} {as_text(inner)}" for name, inner in value.items()) or DASH
    return str(value)


def day(at: float | None) -> str:
    """A timestamp in local time."""
    return DASH if at is None else datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")
