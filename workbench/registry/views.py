"""Saved views: names of addresses in the studio, such as *adapters* for /experts?method=lora."""

from __future__ import annotations

import re
import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.errors import BadSpecError, NotFoundError
from workbench.registry.cards import ViewCard
from workbench.schema.names import clean_name
from workbench.schema.tables import SavedView

MOST_LETTERS = 2000  # of an address
_ADDRESS = re.compile(r"/[a-z0-9_-]*(\?[\x21-\x7e]*)?")  # a page, and what is chosen on it as a browser writes it


def list_views(session: Session, page: str = "") -> list[ViewCard]:
    """All saved views by name, or those of one page, such as /experts."""
    rows = session.scalars(select(SavedView).order_by(SavedView.name))
    return [_card(row) for row in rows if page in ("", row.address.partition("?")[0])]


def get_view(session: Session, name: str) -> ViewCard:
    """One saved view. Raises NotFoundError."""
    return _card(_row(session, name))


def save_view(session: Session, name: str, address: str) -> ViewCard:
    """Names an address; an existing view of that name gets this address. Raises BadSpecError for an invalid one."""
    name = clean_name("view", name)
    if len(address) > MOST_LETTERS or not _ADDRESS.fullmatch(address):
        raise BadSpecError(
            ["The address of a view must be one in the studio, such as /experts?method=lora."],
            f"Copy it from the browser, from the first / after the host; at most {MOST_LETTERS:,} characters.",
        )
    row = session.get(SavedView, name) or SavedView(name=name)
    row.address, row.updated_at = address, time.time()
    session.add(row)
    session.flush()
    return _card(row)


def delete_view(session: Session, name: str) -> ViewCard:
    """Deletes a saved view, and returns what it was. Raises NotFoundError."""
    row = _row(session, name)
    card = _card(row)
    session.delete(row)
    session.flush()
    return card


def _row(session: Session, name: str) -> SavedView:
    row = session.get(SavedView, name)
    if row is None:
        raise NotFoundError("view", name, session.scalars(select(SavedView.name).order_by(SavedView.name).limit(20)))
    return row


def _card(row: SavedView) -> ViewCard:
    return ViewCard(name=row.name, address=row.address, updated_at=row.updated_at)
