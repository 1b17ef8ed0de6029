"""Buttons that change the registry: disabled for those who may only look, in one transaction, with a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import streamlit as st

from ui.widgets.notices import explained, keep
from workbench.access.actor import Role, may
from workbench.registry.database import transaction

Changed = TypeVar("Changed")


def cannot_change() -> bool:
    """Whether every change of this user would be refused, as it is for a viewer."""
    return not may(Role.EDITOR)


def apply(
    change: Callable[[Any], Changed],
    message: str | Callable[[Changed], str],
    then: Callable[[], object] = lambda: None,
) -> None:
    """Changes the registry and draws the page again with the message; a Problem is shown instead.

    `change` takes the session of a transaction, and `then` is called once that is committed.
    """
    with explained():
        with transaction() as session:
            changed = change(session)
        then()
        keep(message if isinstance(message, str) else message(changed))
        st.rerun()


def offer_deletion(what: str, key: str, delete: Callable[[Any], object], message: str, label: str = "Delete …") -> None:
    """A popover that says what is deleted (Markdown), and deletes it on a second click."""
    with st.popover(label, icon=":material/delete:"):
        st.markdown(what)
        if st.button("Delete for good", key=key, type="primary", disabled=cannot_change()):
            apply(delete, message)
