"""Rows by name: looking them up, checking new names, and choosing the colour and mark of a new expert.

`find_row` is the rule for what a name means. An alias means an expert or a mixture, and `seed:NAME` means a seed model
as it is: as an expert, as the mixture of that expert alone, and where a seed model is asked for.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import ColumnElement, literal, select
from sqlalchemy.orm import InstrumentedAttribute, Session, joinedload
from sqlalchemy.orm.interfaces import ORMOption

from engine.methods.bare_seed.descriptor import METHOD as BARE_SEED
from workbench.errors import BadSpecError, NameTakenError, NotFoundError
from workbench.formatting.palette import free_number
from workbench.formatting.shell_command import shell_command
from workbench.schema.tables import (
    Alias,
    Clustering,
    Comparison,
    Corpus,
    Domain,
    Expert,
    Mixture,
    MixtureMember,
    Prior,
    RegistryIdentity,
    Report,
    SavedView,
    SeedModel,
    User,
)
from workbench.specs.base import SEED, Name
from workbench.specs.gates import default_gate, dump_gate

ALIAS_SIGN = "@"  # between the two parts of an alias

_name: TypeAdapter[str] = TypeAdapter(Name)


Row = TypeVar("Row", Corpus, Domain, SeedModel, Expert, Mixture, Prior, Clustering, Alias, SavedView, User)
Named = type[Corpus] | type[Domain] | type[SeedModel] | type[Expert] | type[Mixture] | type[Prior] | type[Clustering]
RowWithId = TypeVar("RowWithId", Report, Comparison)
Listed = ColumnElement[bool] | InstrumentedAttribute[bool]


def by_name(session: Session, table: type[Row], name: str, *options: ORMOption) -> Row:
    """The row that `find_row` finds. Raises NotFoundError with the existing names."""
    row = find_row(session, table, name, *options)
    if row is None:
        raise unknown_name(session, table, name)
    return row


def find_row(session: Session, table: type[Row], name: str, *options: ORMOption) -> Row | None:
    """The row that a name means, loaded with these options: its own, its alias's, or a seed model's by `seed:NAME`.

    A mixture of a seed model alone is not stored, whoever asks for it.
    """
    row = session.scalar(select(table).options(*options).where(table.name == name))
    row = aliased_row(session, table, name) if row is None else row
    if row is not None or not name.startswith(SEED):
        return row
    meant: Any = None
    if table is SeedModel:
        meant = session.scalar(select(SeedModel).where(SeedModel.name == name.removeprefix(SEED)))
    elif table is Expert:
        meant = bare_seed(session, name)
    elif table is Mixture and (expert := find_row(session, Expert, name)) is not None:
        meant = Mixture(id=expert.id, name=name, gate=dump_gate(default_gate()), notes="", created_at=expert.created_at)
        meant.members = [MixtureMember(expert=expert, expert_id=expert.id, position=0, weight=1.0, active=True)]
    return meant if isinstance(meant, table) else None


def bare_seed(session: Session, name: str) -> Expert | None:
    """The seed model that `seed:NAME` names, as an expert. A session that writes stores its row."""
    if (row := next((row for row in bare_seeds(session) if row.name == name), None)) is None:
        return None
    if session.get_bind().get_execution_options().get("registry") != "read":
        look = choose_look(session, name)
        if (stored := session.scalar(select(Expert).where(Expert.name == name))) is not None:
            return stored  # by another transaction, until whose commit the choice waited
        row.colour_number, row.mark = look
        session.add(row)
        session.flush()
    return row


def bare_seeds(session: Session) -> list[Expert]:
    """The seed models as experts, the oldest first, without those that have a row; none of these rows is stored.

    A row has the id of its seed model.
    """
    stored = (literal(SEED) + SeedModel.name).in_(select(Expert.name))
    seeds = select(SeedModel).options(joinedload(SeedModel.artifact)).where(~stored)
    known = session.execute(select(Expert.colour_number, Expert.mark, Expert.enabled)).tuples().all()
    rows = []
    for seed in session.scalars(seeds.order_by(SeedModel.created_at, SeedModel.id)).all():
        colour_number, mark = _free_look(SEED + seed.name, known)
        known = [*known, (colour_number, mark, True)]
        rows.append(_bare_seed(seed, colour_number, mark))
    return rows


def _bare_seed(seed: SeedModel, colour_number: int, mark: str) -> Expert:
    return Expert(
        id=seed.id,
        name=SEED + seed.name,
        method=BARE_SEED.name,
        seed=seed,
        seed_id=seed.id,
        base=seed.artifact,
        base_id=seed.artifact_id,
        artifact=seed.artifact,
        artifact_id=seed.artifact_id,
        tokenizer_sha256=seed.tokenizer_sha256,
        data_sha256="",
        num_parameters=0,
        config={"domains": []},
        metrics={},
        tags=[],
        notes="",
        enabled=True,
        colour_number=colour_number,
        mark=mark,
        code_version="",
        job_id=seed.job_id,
        created_at=seed.created_at,
    )


def unknown_name(session: Session, table: type[Row], name: str) -> NotFoundError:
    """The error for a name that no row of a table has; it lists some that there are."""
    if name.startswith(SEED) and table in (Expert, Mixture):
        return unknown_name(session, SeedModel, name.removeprefix(SEED))
    known = session.scalars(select(table.name).order_by(table.name).limit(20))
    return NotFoundError(table.noun, name, known)


def by_id(session: Session, table: type[RowWithId], id: str, *listed: Listed) -> RowWithId:
    """The row with this id or unique prefix of it. Raises NotFoundError with the newest ids, of `listed` rows only."""
    rows = session.scalars(select(table).where(table.id.startswith(id, autoescape=True)).limit(2)).all()
    if len(rows) != 1:
        raise unknown_id(session, table, id, *listed)
    return rows[0]


def unknown_id(session: Session, table: type[RowWithId], id: str, *listed: Listed) -> NotFoundError:
    """The error for an id that no row of a table has; it lists the newest ids, of `listed` rows only."""
    newest = select(table.id).where(*listed).order_by(table.created_at.desc()).limit(20)
    return NotFoundError(table.noun, id, session.scalars(newest))


def aliased_row(session: Session, table: type[Row], name: str) -> Row | None:
    """The expert or the mixture that an alias means; None for another name."""
    alias = session.get(Alias, name) if ALIAS_SIGN in name else None
    row = alias and (alias.expert or alias.mixture)
    return row if isinstance(row, table) else None


def ensure_free(session: Session, table: type[Row] | Named, name: str) -> None:
    """Raises NameTakenError when a row has this name, BadSpecError for a name that the command line would misread."""
    if problem := not_a_cli_name(table.noun, name):
        raise BadSpecError([problem])
    if session.scalar(select(table.name).where(table.name == name)) is not None:
        raise NameTakenError(table.noun, name)


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
    if name.startswith(SEED) and what in ("expert", "mixture", "seed model"):
        return (
            f"“{name}” cannot be the name of a new {what}: it means the seed model “{name.removeprefix(SEED)}” as it "
            f"is. Name it without “{SEED}”."
        )
    if ALIAS_SIGN in name and what in ("expert", "mixture"):
        return (
            f"“{name}” cannot be the name of a new {what}: “{ALIAS_SIGN}” is the sign of an alias. Name it without, "
            f"and set the alias with `{shell_command('alias', 'set', name, 'NAME')}`."
        )
    return ""


def clean_name(what: str, name: str) -> str:
    """The name without surrounding white space; raises BadSpecError for an invalid name."""
    try:
        return _name.validate_python(name)
    except ValidationError:
        raise BadSpecError(
            [f"The name of a {what} must have 1 to 80 printable characters and no comma, got “{name[:100]!r}”."]
        ) from None


_SIGNS = string.ascii_uppercase + string.digits


def choose_look(session: Session, name: str) -> tuple[int, str]:
    """The colour number and the mark of an expert that is registered next, in a transaction that writes."""
    # One at a time until the commit: on PostgreSQL another could otherwise choose the same mark.
    session.execute(select(RegistryIdentity.id).with_for_update())
    return _free_look(name, session.execute(select(Expert.colour_number, Expert.mark, Expert.enabled)).tuples().all())


def _free_look(name: str, known: Sequence[tuple[int, str, bool]]) -> tuple[int, str]:
    """A colour number and a mark that none of these has: the numbers, marks and switches of all experts."""
    enabled = {number for number, _, is_enabled in known if is_enabled}
    return free_number(enabled, {number for number, _, _ in known}), free_mark(name, {mark for _, mark, _ in known})


def free_mark(name: str, taken: Collection[str]) -> str:
    """A mark that is not taken: of the last part of the name, `demo/python` -> `Py`, if any is left."""
    return next(mark for mark in _marks(name) if mark not in taken)


def _marks(name: str) -> Iterator[str]:
    """The first two letters, the first and another letter, the first and a digit, any two and more signs."""
    last = name.rpartition("/")[2].rpartition(":")[2]
    signs = [sign for sign in last if sign.isalnum() and len(sign.upper()) == len(sign.lower()) == 1]
    if signs:
        first = signs[0].upper()
        yield from (first + sign.lower() for sign in [*signs[1:], *string.digits])
    for length in range(2, 8):
        yield from (first + "".join(rest).lower() for first, *rest in product(_SIGNS, repeat=length))
