"""Aliases: names such as law@production that mean an expert or a mixture, as in MLflow's `models:/law@production`.

An alias is read wherever the name of a model is. What is stored keeps the model's own name, so that moving an alias
changes no job, manifest or mixture. What stands before the sign groups aliases, and need not be the name of anything.
"""

from __future__ import annotations

import re
import time
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload
from sqlalchemy.orm.interfaces import ORMOption

from workbench.answers.cards import AliasCard
from workbench.errors import BadSpecError, NoModelError
from workbench.schema.names import ALIAS_SIGN, aliased_row, by_name, clean_name, find_row, unknown_name
from workbench.schema.tables import Alias, Expert, Mixture
from workbench.specs.base import SEED

_FORM = re.compile(r"[A-Za-z0-9_-]{1,40}")  # of the part after the sign, as MLflow has it
_RESERVED = re.compile(r"latest|v?\d+", re.IGNORECASE)  # mean versions in MLflow


def list_aliases(session: Session) -> list[AliasCard]:
    """All aliases by name."""
    statement = select(Alias).options(joinedload(Alias.expert), joinedload(Alias.mixture)).order_by(Alias.name)
    return [_card(row) for row in session.scalars(statement)]


def get_alias(session: Session, name: str) -> AliasCard:
    """One alias. Raises NotFoundError."""
    return _card(by_name(session, Alias, name))


def set_alias(session: Session, name: str, model: str) -> AliasCard:
    """Makes an alias mean a mixture or an expert, by its name or another alias; an existing alias is moved.

    Raises BadSpecError for a name that cannot be an alias, NoModelError for an unknown model.
    """
    name, target = _clean(session, name), model_row(session, model)
    row = session.get(Alias, name) or Alias(name=name)
    row.expert, row.mixture = (target, None) if isinstance(target, Expert) else (None, target)
    row.updated_at = time.time()
    session.add(row)
    session.flush()
    return _card(row)


def delete_alias(session: Session, name: str) -> None:
    """Deletes an alias, not its model. Raises NotFoundError."""
    session.delete(by_name(session, Alias, name))


def model_row(session: Session, name: str, *of_mixture: ORMOption) -> Mixture | Expert:
    """The mixture or expert that a name, an alias or `seed:NAME` means; of two with one name the mixture.

    A mixture is loaded with the options. Raises NoModelError, or NotFoundError for an unknown seed model.
    """
    row: Mixture | Expert | None = session.scalar(select(Mixture).options(*of_mixture).where(Mixture.name == name))
    row = row or aliased_row(session, Mixture, name) or find_row(session, Expert, name)
    if row is None and name.startswith(SEED):
        raise unknown_name(session, Expert, name)
    if row is None:
        of_both = [session.scalars(select(table.name).order_by(table.name)).all() for table in (Mixture, Expert)]
        raise NoModelError(name, *of_both)
    return row


def model_name(session: Session, name: str) -> str:
    """The name of what an alias means; any other name as it is."""
    target = aliased_row(session, Mixture, name) or aliased_row(session, Expert, name)
    is_taken = target and any(
        session.scalar(select(table.id).where(table.name == name)) is not None for table in (Mixture, Expert)
    )
    return target.name if target is not None and not is_taken else name


def aliases_of(session: Session, row: Expert | Mixture) -> list[str]:
    """The names of the aliases that mean an expert or a mixture."""
    column = Alias.expert_id if isinstance(row, Expert) else Alias.mixture_id
    return list(session.scalars(select(Alias.name).where(column == row.id).order_by(Alias.name)))


def _clean(session: Session, name: str) -> str:
    name = clean_name("alias", name)
    stem, sign, alias = name.rpartition(ALIAS_SIGN)
    if not (stem.strip() and sign and _FORM.fullmatch(alias)) or _RESERVED.fullmatch(alias) or stem.startswith("-"):
        raise BadSpecError(
            [
                f"“{name}” cannot be an alias: write it as law@production. After the sign stand 1 to 40 letters, "
                "digits, - and _, but neither “latest” nor a number, which could be taken for a version."
            ]
        )
    if any(session.scalar(select(table.id).where(table.name == name)) for table in (Mixture, Expert)):
        raise BadSpecError([f"“{name}” is the name of a mixture or an expert already."], "Choose another alias.")
    return name


def _card(row: Alias) -> AliasCard:
    kind: Literal["expert", "mixture"] = "expert" if row.expert else "mixture"
    target = row.expert or row.mixture
    assert target is not None
    return AliasCard.from_fields(row, model=target.name, kind=kind)
