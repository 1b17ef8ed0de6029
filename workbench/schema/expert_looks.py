"""The colour number and the mark of an expert: chosen once, when it is registered, and never changed."""

from __future__ import annotations

import string
from collections.abc import Collection, Iterator
from itertools import product

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.formatting.palette import free_number
from workbench.schema.tables import Expert, RegistryIdentity

_SIGNS = string.ascii_uppercase + string.digits


def choose_look(session: Session, name: str) -> tuple[int, str]:
    """The colour number and the mark of an expert that is registered next, in a transaction that writes."""
    # One at a time until the commit: on PostgreSQL another could otherwise choose the same mark.
    session.execute(select(RegistryIdentity.id).with_for_update())
    known = session.execute(select(Expert.colour_number, Expert.mark, Expert.enabled)).tuples().all()
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
