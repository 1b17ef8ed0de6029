"""Things by their names: found, or refused with the names there are; free, or refused as taken."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.errors import BadSpec, NameTaken, NotFound
from workbench.registry.tables import Clustering, Corpus, Domain, Expert, Mixture, Prior, SeedModel
from workbench.spec_base import Name

_name: TypeAdapter[str] = TypeAdapter(Name)


Row = TypeVar("Row", Corpus, Domain, SeedModel, Expert, Mixture, Prior, Clustering)


def by_name(session: Session, table: type[Row], what: str, name: str) -> Row:
    """The row called `name`; raises NotFound with the names there are."""
    row = session.scalar(select(table).where(table.name == name))
    if row is None:
        raise NotFound(what, name, session.scalars(select(table.name).order_by(table.name).limit(20)))
    return row


def ensure_free(session: Session, table: type[Row], what: str, name: str) -> None:
    """Raises NameTaken when a row is called `name` already, BadSpec for a name that no command could say."""
    if told := not_a_cli_name(what, name):
        raise BadSpec([told])
    if session.scalar(select(table.name).where(table.name == name)) is not None:
        raise NameTaken(what, name)


def free_name(name: str, joint: str, taken: Collection[str]) -> str:
    """The name, with a number behind a joint (`law.2`) where it is taken."""
    tries, found = 1, name
    while found in taken:
        tries += 1
        found = f"{name}{joint}{tries}"
    return found


def not_a_cli_name(what: str, name: str) -> str:
    """Why nothing new may be called `name`; empty when it may. What is called so already stays as it is."""
    if name.startswith("-") or name in (".", ".."):
        return (
            f"The name of a new {what} must not begin with “-” or be “.” or “..”, but is “{name}” instead: the command "
            "line would take it for an option or a folder."
        )
    return ""


def clean_name(what: str, name: str) -> str:
    """The name without blanks around it; raises BadSpec for one that no screen could show or no command could say."""
    try:
        return _name.validate_python(name)
    except ValidationError:
        raise BadSpec(
            [
                f"The name of a {what} must have 1 to 80 printable characters and no comma, "
                f"but is “{name[:100]!r}” instead."
            ]
        ) from None
