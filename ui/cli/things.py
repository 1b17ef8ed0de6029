"""Verbs that things of the registry have in common, from their descriptions in `workbench.registry.things`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from ui.cli.listing import Column, lists
from ui.cli.options import Json
from ui.cli.output import print_done

if TYPE_CHECKING:
    from workbench.registry.things import ThingKind


def get_card(kind: ThingKind, name: str) -> Any:
    """The card of one thing. Raises NotFoundError."""
    from workbench.registry.database import reading
    from workbench.registry.things import THINGS

    with reading() as session:
        return THINGS[kind].get(session, name)


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
        from workbench.registry.database import reading
        from workbench.registry.things import THINGS

        with reading() as session:
            return THINGS[kind].list_all(session)

    list_all.__doc__ = help
    app.command(verb)(lists(columns, empty=empty, noun=noun)(list_all))


def add_delete(app: typer.Typer, kind: ThingKind, name: Any, help: str, kept: str = "") -> None:
    """Adds the verb that deletes one; `name` is the type of its argument, and `kept` what stays."""

    def delete(name: str, as_json: Json = False) -> None:
        from workbench.registry.database import transaction
        from workbench.registry.things import THINGS

        with transaction() as session:
            THINGS[kind].delete_one(session, name)
        print_done({"deleted": name}, f"“{name}” is deleted{kept}.", as_json)

    delete.__annotations__["name"] = name
    app.command("delete", help=help)(delete)
