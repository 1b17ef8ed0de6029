"""The page's connection to its server: what to do while it is away, and a fresh page once a new server answers."""

from __future__ import annotations

from streamlit.runtime.scriptrunner import get_script_run_ctx

from ui.widgets.elements.component import unseen_component

_ADVICE = (
    "The studio's server does not answer. If it was stopped, start it again with “workbench up”. "
    "This page reconnects by itself, and jobs resume."
)

_draw = unseen_component("connection")


def watch_connection() -> None:
    """Draws nothing. Called once for each page."""
    context = get_script_run_ctx()
    data = {"session": context.session_id if context else "", "advice": _ADVICE}
    _draw(key="connection", data=data, on_reconnected_change=lambda: None)
