"""Verbs of the command line, from functions that return what is printed, kinds of job, and things of the registry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from ui.cli.job_progress import submit
from ui.cli.listing import Column, lists
from ui.cli.options import Command, Json, RunOptions, keyword, takes, with_parameters
from ui.cli.output import print_json, say
from workbench.specs.base import Spec

if TYPE_CHECKING:
    from workbench.registry.things import ThingKind


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


def verb(
    app: typer.Typer, name: str = "", **settings: Any
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Adds a function as a verb whose outcome is printed; its name is the function's unless given."""

    def decorate(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
        app.command(name or None, **settings)(prints(function))
        return function

    return decorate


def read(service: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a service answers whose first argument is a session that reads the registry."""
    from workbench.registry.database import reading

    with reading() as session:
        return service(session, *arguments, **options)


def write(service: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The same of a service that changes the registry, in one transaction."""
    from workbench.registry.database import transaction

    with transaction() as session:
        return service(session, *arguments, **options)


def add_job(app: typer.Typer, name: str, spec: type[Spec], *arguments: str, help: str, **fixed: Any) -> None:
    """Adds a verb that submits a job: see `takes`."""

    def submit_job(spec: Spec, run_options: RunOptions) -> None:
        submit(spec, run_options)

    app.command(name, help=help)(takes(spec, *arguments, **fixed)(submit_job))


# things of the registry -----------------------------------------------------------------------------


def get_card(kind: ThingKind, name: str) -> Any:
    """The card of one thing. Raises NotFound."""
    from workbench.registry.things import THINGS

    return read(THINGS[kind].get, name)


def add_list(
    app: typer.Typer,
    kind: ThingKind,
    columns: Sequence[Column],
    *,
    noun: str,
    help: str,
    empty: str,
    verb: str = "list",
) -> None:
    """Adds the verb that lists all things of a sort."""

    def list_all() -> Iterable[Any]:
        from workbench.registry.things import THINGS

        things: Iterable[Any] = read(THINGS[kind].list_all)
        return things

    app.command(verb, help=help)(lists(columns, empty=empty, noun=noun)(list_all))


def add_delete(app: typer.Typer, kind: ThingKind, name: Any, help: str, kept: str = "") -> None:
    """Adds the verb that deletes one; `name` is the type of its argument, and `kept` what stays."""

    def delete(name: str) -> Outcome:
        from workbench.registry.things import THINGS

        write(THINGS[kind].delete_one, name)
        return Outcome({"deleted": name}, f"“{name}” is deleted{kept}.")

    delete.__annotations__["name"] = name
    verb(app, help=help)(delete)
