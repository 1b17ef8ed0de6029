"""Verbs of the command line, from functions that return what is printed, kinds of job, and things of the registry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Concatenate, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup
from typer.main import get_group

from engine.config import MOST
from ui.cli.job_progress import queue_follow_up, submit
from ui.cli.options import Command, Json, RunOptions, keyword, takes, with_parameters
from ui.cli.output import as_text, day, print_json, print_note, print_table, say
from ui.errors import BadUsageError
from ui.present.text.formatting import newest_of, pluralize
from workbench.specs.base import Spec

if TYPE_CHECKING:
    from workbench.registry.resources import ResourceKind

P = ParamSpec("P")
T = TypeVar("T")


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


NAME = Column("Name", lambda item: item.name)
CREATED = Column("Created", lambda item: item.created_at, day)


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
            rows = _sort(rows, _column(self.sort, columns), self.reverse)
        elif self.reverse:
            rows.reverse()
        return rows


def _matcher(text: str, columns: Sequence[Column]) -> Callable[[Any], bool]:
    """A test for `TEXT` in any column, or in one as `COLUMN=TEXT`; upper and lower case are the same."""
    key, equals, part = text.partition("=")
    searched = [_column(key, columns)] if equals else columns
    wanted = (part if equals else text).strip().casefold()
    return lambda item: any(wanted in as_text(column.cell(item)).casefold() for column in searched)


def _sort(items: list[Any], column: Column, reverse: bool) -> list[Any]:
    """The items by their value in a column; those without a value come last."""
    present = [item for item in items if column.value(item) not in (None, "")]
    missing = [item for item in items if column.value(item) in (None, "")]

    def key(item: Any) -> Any:
        value = column.value(item)
        return value if isinstance(value, int | float) else as_text(value).casefold()

    return sorted(present, key=key, reverse=reverse) + missing


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
            rows = rows[: selection.limit]
            if as_json:
                print_json(rows)
                return
            cells = [[column.cell(item) for column in columns] for item in rows]
            print_table([one.title for one in columns], cells, empty=f"No {noun} matches." if items else empty)

        shared = [keyword(name, *given) for name, given in {**options, "as_json": (Json, False)}.items()]
        return with_parameters(command, function, [*own, *shared])

    return decorate


def _cut(selection: Selection, total: int, noun: str) -> str:
    if selection.limit is None or selection.limit >= total:
        return ""
    if selection.sort or selection.reverse:
        return f"{selection.limit:,} of {pluralize(total, noun)}."
    return newest_of(selection.limit, total, noun)


@dataclass(frozen=True)
class Outcome:
    """What a verb has done: the value that --json prints, and a sentence for people or what prints the value for them.

    The exit code is 1 unless it is `ok`.
    """

    value: Any
    text: str | Callable[[Any], object]
    ok: bool = True


def prints(function: Callable[..., Outcome]) -> Command:
    """Makes a command of a function; it gets the option --json, and its outcome is printed.

    The function may take `as_json` as well, to show no progress with it.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    reads_json = any(one.name == "as_json" for one in own)

    def command(**given: Any) -> None:
        as_json = given["as_json"] if reads_json else given.pop("as_json")
        outcome = function(**given)
        if as_json:
            print_json(outcome.value)
        elif isinstance(outcome.text, str):
            say(outcome.text)
        else:
            outcome.text(outcome.value)
        if not outcome.ok:
            raise typer.Exit(1)

    return with_parameters(command, function, own if reads_json else [*own, keyword("as_json", Json)])


def read(service: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
    """What a service answers whose first argument is a session that reads the registry."""
    from workbench.registry.database import reading

    with reading() as session:
        return service(session, *arguments, **options)


def write(service: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
    """The same of a service that changes the registry, in one transaction."""
    from workbench.registry.database import transaction

    with transaction() as session:
        return service(session, *arguments, **options)


def get_card(kind: ResourceKind, name: str) -> Any:
    """The card of one thing. Raises NotFoundError."""
    from workbench.registry.resources import RESOURCES

    return read(RESOURCES[kind].get, name)


class _Group(TyperGroup):
    """The verbs of a command; those of kinds of job are made when another is sought or all are listed, since they
    import every kind, also those of plug-ins."""

    source: ClassVar[CommandGroup]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of this name."""
        if cmd_name not in self.commands:
            self._add_jobs()
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all verbs."""
        self._add_jobs()
        return super().list_commands(ctx)

    def _add_jobs(self) -> None:
        if self.source.make_job_verbs():
            self.commands = get_group(self.source).commands


class CommandGroup(typer.Typer):
    """A command with verbs, from functions, kinds of job, and things of the registry."""

    def __init__(self, help: str | None) -> None:
        super().__init__(cls=type("Group", (_Group,), {"source": self}), no_args_is_help=True, help=help)
        self._job_verbs: list[tuple[str, int, dict[str, str]]] = []

    def verb(self, name: str = "", **settings: Any) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
        """Adds a function as a verb whose outcome is printed; its name is the function's unless given."""

        def decorate(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
            self.command(name or None, **settings)(prints(function))
            return function

        return decorate

    def add_job(self, command: str, spec: type[Spec], help: str = "", **fixed: Any) -> None:
        """Adds a verb that submits a job, such as `merge CLUSTERING`: see `takes`. Its default help is the spec's."""

        def submit_job(spec: Spec, run_options: RunOptions) -> None:
            queue_follow_up(spec, run_options, submit(spec, run_options))

        name, *arguments = command.lower().split()
        self.command(name, help=help or spec.__doc__)(takes(spec, *arguments, **fixed)(submit_job))

    def add_jobs(self, group: str, **more: str) -> None:
        """Adds a verb for each kind of job whose command is one of this group and that has none yet.

        `more` are further sentences of its help, by the verb. They are made by `make_job_verbs`.
        """
        self._job_verbs.append((group, len(self.registered_commands), more))

    def make_job_verbs(self) -> bool:
        """Makes the verbs of kinds of job, where `add_jobs` was called; whether there were any to make."""
        from workbench.kinds.kind import known_kinds

        is_due = bool(self._job_verbs)
        while self._job_verbs:
            group, position, more = self._job_verbs.pop()
            later = self.registered_commands[position:]
            taken = {command.name for command in self.registered_commands}
            del self.registered_commands[position:]
            for kind in known_kinds().values():
                first, _, command = kind.command.partition(" ")
                name = command.partition(" ")[0]
                if first == group and name and name not in taken:
                    help = "\n\n".join(filter(None, (kind.spec.__doc__, more.get(name.replace("-", "_")))))
                    self.add_job(command, kind.spec, help)
            self.registered_commands += later
        return is_due

    def add_list(
        self, kind: ResourceKind, columns: Sequence[Column], help: str, first_step: str, verb: str = "list"
    ) -> None:
        """Adds the verb that lists all things of a sort; where there is none, it prints the `first_step`."""
        noun = "seed model" if kind == "seed" else kind

        def list_all() -> Iterable[Any]:
            from workbench.registry.resources import RESOURCES

            return read(RESOURCES[kind].list_all)

        empty = f"There is no {noun} yet. {first_step}"
        self.command(verb, help=help)(lists(columns, empty=empty, noun=noun)(list_all))

    def add_delete(self, kind: ResourceKind, name: Any, help: str, kept: str = "") -> None:
        """Adds the verb that deletes one; `name` is the type of its argument, and `kept` what stays."""

        def delete(name: str) -> Outcome:
            from workbench.registry.resources import RESOURCES

            write(RESOURCES[kind].delete_one, name)
            return Outcome({"deleted": name}, f"“{name}” is deleted{kept}.")

        delete.__annotations__["name"] = name
        self.verb(help=help)(delete)
