"""How an expert or a mixture is used from other programs: code and commands, ready to be copied."""

from __future__ import annotations

import streamlit as st

from ui.present.model_use import completion_line, generate_line, notebook_lines, openai_lines
from ui.present.text.formatting import spoken
from ui.studio.job_views.job_view import show_form_and_job
from ui.widgets.notices import explained
from ui.widgets.on_demand import content_of
from workbench.access.home_token import needs_token
from workbench.registry.aliases import list_aliases
from workbench.registry.database import reading
from workbench.settings import get_settings


def show_use(model: str, kind: str, is_enabled: bool = True) -> None:
    """Python, curl and command of this model, by its name or by one of its aliases."""
    if not is_enabled:
        st.warning("It is disabled: the API server answers for it after it is enabled.")
    with reading() as session:
        names = [one.name for one in list_aliases(session) if (one.kind, one.model) == (kind, model)]
    if names:
        called = st.selectbox(
            "Called by", [model, *names], key=f"use.{kind}.{model}", help="An alias can be moved to another model."
        )
    else:
        called = model
    settings = get_settings()
    python, notebook, curl, command = st.tabs(["Python", "Notebook", "curl", "Command"])
    with python:
        st.code(openai_lines(called, settings), language="python", wrap_lines=True)
        st.caption("With OpenAI's client (`pip install openai`), while `workbench up` runs.")
    with notebook:
        st.code(notebook_lines(called, kind), language="python", wrap_lines=True)
        st.caption("Loads the model in the process that runs it; no server is needed.")
    with curl:
        st.code(completion_line(called, settings), language="bash", wrap_lines=True)
    with command:
        st.code(generate_line(called), language="bash", wrap_lines=True)
    if needs_token(settings):
        st.caption(spoken("The server requires the token that `workbench token` prints."))


def show_job_popover(kind: str, field: str, model: str, label: str, icon: str = ":material/download:") -> None:
    """The form of a kind, where the field that names the model is answered, and the last job of it."""
    key = f"popover.{kind}.{model}"
    box = st.popover(label, icon=icon, key=key, on_change="rerun")
    if content := content_of(box, key):
        with content, explained():
            show_form_and_job(kind, {}, label, skip=(field,), given={(field,): model})
