"""Saved views: names of addresses in the studio, such as *adapters* for /experts?method=lora."""

from __future__ import annotations

import re
import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.answers.cards import ViewCard
from workbench.errors import BadSpecError
from workbench.schema.names import by_name, clean_name
from workbench.schema.tables import SavedView

MOST_LETTERS = 2000  # of an address
_ADDRESS = re.compile(r"/[a-z0-9_-]*(\?[\x21-\x7e]*)?")  # a page, and what is chosen on it as a browser writes it


def list_views(session: Session, page: str = "") -> list[ViewCard]:
    """All saved views by name, or those of one page, such as /experts."""
    rows = session.scalars(select(SavedView).order_by(SavedView.name))
    return [ViewCard.from_fields(row) for row in rows if page in ("", row.address.partition("?")[0])]


def get_view(session: Session, name: str) -> ViewCard:
    """One saved view. Raises NotFoundError."""
    return ViewCard.from_fields(by_name(session, SavedView, name))


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
    return ViewCard.from_fields(row)


def delete_view(session: Session, name: str) -> None:
    """Deletes a saved view. Raises NotFoundError."""
    session.delete(by_name(session, SavedView, name))
