"""The `list` commands: each prints one table and takes --filter, --sort, --reverse and --limit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from engine.config import MOST
from ui.cli.options import Command, Json
from ui.cli.output import print_json, print_note, print_table, shown
from ui.errors import BadUsageError
from ui.present.text.formatting import newest_of, pluralize


@dataclass(frozen=True)
class Column:
    """A column of a list: its title, its value, by which rows are sorted, and the text that is printed."""

    title: str
    value: Callable[[Any], Any]
    text: Callable[[Any], Any] = lambda value: value

    @property
    def key(self) -> str:
        """The column's name on the command line."""
        return self.title.lower().replace(" ", "-")

    def cell(self, item: Any) -> Any:
        """The printed form of an item."""
        return self.text(self.value(item))


def name_column(title: str = "Name") -> Column:
    """The names of what is listed."""
    return Column(title, lambda item: item.name)


def created_column(text: Callable[[float], str]) -> Column:
    """When each item was created."""
    return Column("Created", lambda item: item.created_at, text)


@dataclass(frozen=True)
class Selection:
    """Which rows a list holds, and in which order."""

    filters: Sequence[str] = ()
    sort: str = ""
    reverse: bool = False
    limit: int | None = None

    def apply(self, items: Iterable[Any], columns: Sequence[Column]) -> list[Any]:
        """The items that match every filter, sorted; --limit is applied later. Raises BadUsageError."""
        rows = list(items)
        for text in self.filters:
            matches = _matcher(text, columns)
            rows = [item for item in rows if matches(item)]
        if self.sort:
            rows = _sorted(rows, _column(self.sort, columns), self.reverse)
        elif self.reverse:
            rows.reverse()
        return rows


def _matcher(text: str, columns: Sequence[Column]) -> Callable[[Any], bool]:
    """A test for `TEXT` in any column, or in one as `COLUMN=TEXT`; upper and lower case are the same."""
    key, equals, part = text.partition("=")
    searched = [_column(key, columns)] if equals else columns
    wanted = (part if equals else text).strip().casefold()
    return lambda item: any(wanted in shown(column.cell(item)).casefold() for column in searched)


def _sorted(items: list[Any], column: Column, reverse: bool) -> list[Any]:
    """The items by their value in a column; those without a value come last."""
    present = [item for item in items if column.value(item) not in (None, "")]
    missing = [item for item in items if column.value(item) in (None, "")]
    return sorted(present, key=lambda item: _comparable(column.value(item)), reverse=reverse) + missing


def _comparable(value: Any) -> Any:
    return value if isinstance(value, int | float) else shown(value).casefold()


def _column(name: str, columns: Sequence[Column]) -> Column:
    key = name.strip().lower().replace(" ", "-")
    for column in columns:
        if column.key == key:
            return column
    raise BadUsageError(f"The list has no column “{name}”.", f"Choose one of {', '.join(one.key for one in columns)}.")


_Filter = Annotated[
    list[str],
    typer.Option("--filter", metavar="[COLUMN=]TEXT", help="List only rows that contain this text; may be repeated."),
]
_Sort = Annotated[str, typer.Option("--sort", metavar="COLUMN", help="Sort by a column.")]
_Reverse = Annotated[bool, typer.Option("--reverse", help="Reverse the order.")]
_Limit = Annotated[int | None, typer.Option("--limit", min=1, max=MOST, help="List at most this many rows.")]


def lists(
    columns: Sequence[Column], *, empty: str, noun: str, limit: int | None = None
) -> Callable[[Callable[..., Iterable[Any]]], Command]:
    """Makes a `list` command of a function that returns items: prints a row for each, or with --json the items.

    `empty` is printed where there is nothing to list. What the function takes by keyword is an option of its own.
    """
    options = {"filters": (_Filter, []), "sort": (_Sort, ""), "reverse": (_Reverse, False), "limit": (_Limit, limit)}

    def decorate(function: Callable[..., Iterable[Any]]) -> Command:
        own = list(inspect.signature(function, eval_str=True).parameters.values())

        def command(**given: Any) -> None:
            as_json = given.pop("as_json")
            selection = Selection(**{name: given.pop(name) for name in options})
            items = list(function(**given))
            rows = selection.apply(items, columns)
            if cut := _cut(selection, len(rows), noun):
                print_note(f"{cut} List more with --limit.")
            _print(rows[: selection.limit], columns, as_json, f"No {noun} matches." if items else empty)

        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter(name, keyword, annotation=annotation, default=default)
            for name, (annotation, default) in {**options, "as_json": (Json, False)}.items()
        ]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        command.__annotations__ = {}
        return command

    return decorate


def _cut(selection: Selection, total: int, noun: str) -> str:
    if selection.limit is None or selection.limit >= total:
        return ""
    if selection.sort or selection.reverse:
        return f"{selection.limit:,} of {pluralize(total, noun)}."
    return newest_of(selection.limit, total, noun)


def _print(items: Sequence[Any], columns: Sequence[Column], as_json: bool, empty: str) -> None:
    if as_json:
        print_json(items)
    else:
        rows = [[column.cell(item) for column in columns] for item in items]
        print_table([column.title for column in columns], rows, empty=empty)
