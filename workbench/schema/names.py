"""Rows by name: looking them up, and checking new names."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session
from sqlalchemy.orm.interfaces import ORMOption

from workbench.errors import BadSpec, NameTaken, NotFound
from workbench.formatting.shell_command import shell_command
from workbench.schema.tables import Alias, Clustering, Corpus, Domain, Expert, Mixture, Prior, SeedModel
from workbench.specs.base import Name

ALIAS_SIGN = "@"  # between the two parts of an alias

_name: TypeAdapter[str] = TypeAdapter(Name)


Named = type[Corpus] | type[Domain] | type[SeedModel] | type[Expert] | type[Mixture] | type[Clustering] | type[Prior]
Row = TypeVar("Row", Corpus, Domain, SeedModel, Expert, Mixture, Prior, Clustering)


def by_name(session: Session, table: type[Row], what: str, name: str, *options: ORMOption) -> Row:
    """The row called `name`, of experts and mixtures also by an alias, loaded with these options.

    Raises NotFound with the existing names.
    """
    row = session.scalar(select(table).options(*options).where(table.name == name))
    row = aliased_row(session, table, name) if row is None else row
    if row is None:
        raise NotFound(what, name, session.scalars(select(table.name).order_by(table.name).limit(20)))
    return row


def aliased_row(session: Session, table: type[Row], name: str) -> Row | None:
    """The expert or the mixture that an alias means; None for another name."""
    alias = session.get(Alias, name) if ALIAS_SIGN in name else None
    row = alias and (alias.expert or alias.mixture)
    return row if isinstance(row, table) else None


def ensure_free(session: Session, table: Named, what: str, name: str) -> None:
    """Raises NameTaken when a row has this name, BadSpec for a name that the command line would misread."""
    if problem := not_a_cli_name(what, name):
        raise BadSpec([problem])
    if session.scalar(select(table.name).where(table.name == name)) is not None:
        raise NameTaken(what, name)


def free_name(name: str, joint: str, taken: Collection[str]) -> str:
    """The name, with a number after `joint` (`law.2`) if it is taken."""
    tries, free = 1, name
    while free in taken:
        tries += 1
        free = f"{name}{joint}{tries}"
    return free


def not_a_cli_name(what: str, name: str) -> str:
    """The reason why no new `what` may be called `name`; empty if it may. Existing names stay."""
    if name.startswith("-") or name in (".", ".."):
        return (
            f"“{name}” cannot be the name of a new {what}: the command line would take it for an option or a folder. A "
            "name must not begin with “-” or be “.” or “..”."
        )
    if ALIAS_SIGN in name and what in ("expert", "mixture"):
        return (
            f"“{name}” cannot be the name of a new {what}: “{ALIAS_SIGN}” is the sign of an alias. Name it without, "
            f"and set the alias with `{shell_command('alias', 'set', name, 'NAME')}`."
        )
    return ""


def clean_name(what: str, name: str) -> str:
    """The name without surrounding white space; raises BadSpec for an invalid name."""
    try:
        return _name.validate_python(name)
    except ValidationError:
        raise BadSpec(
            [f"The name of a {what} must have 1 to 80 printable characters and no comma, got “{name[:100]!r}”."]
        ) from None
