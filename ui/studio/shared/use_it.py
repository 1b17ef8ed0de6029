"""How an expert or a mixture is used from other programs: code, commands, and its aliases."""

from __future__ import annotations

import streamlit as st

from ui.present.model_use import completion_line, generate_line, notebook_lines, openai_lines
from ui.present.text.formatting import clock, plain, plain_with_code
from ui.studio.job_views.job_view import show_form_and_job
from ui.widgets.charts_and_tables import show_table
from ui.widgets.notices import apply, cannot_change, explain_problems
from ui.widgets.on_demand import content_of
from workbench.access.home_token import needs_token
from workbench.answers.cards import AliasCard
from workbench.registry import aliases
from workbench.registry.aliases import list_aliases
from workbench.registry.database import reading
from workbench.schema.names import ALIAS_SIGN
from workbench.settings import get_settings


def show_use(model: str, kind: str, is_enabled: bool = True) -> None:
    """Python, curl and command of this model, by its name or by one of its aliases."""
    if not is_enabled:
        st.warning("It is disabled: the API server answers for it after it is enabled.")
    with reading() as session:
        names = [alias.name for alias in list_aliases(session) if (alias.kind, alias.model) == (kind, model)]
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
        st.caption(plain_with_code("The server requires the token that `workbench token` prints."))


def show_job_popover(kind: str, field: str, model: str, label: str, icon: str = ":material/download:") -> None:
    """The form of a kind, where the field that names the model is answered, and the last job of it."""
    key = f"popover.{kind}.{model}"
    box = st.popover(label, icon=icon, key=key, on_change="rerun")
    if content := content_of(box, key):
        with content, explain_problems():
            show_form_and_job(kind, {}, label, skip=(field,), given={(field,): model})


def show_aliases(model: str) -> None:
    """A popover with the aliases of a model, and the form that gives it one."""
    with reading() as session:
        every = aliases.list_aliases(session)
    own = [one for one in every if one.model == model]
    key, label = f"aliases.{model}", f"Aliases ({len(own)})" if own else "Aliases"
    box = st.popover(label, icon=":material/label:", key=key, on_change="rerun")
    if content := content_of(box, key):
        with content:
            _show_inside(model, every, own)


def _show_inside(model: str, every: list[AliasCard], own_aliases: list[AliasCard]) -> None:
    st.caption("An alias means one model at a time. Clients that use it need no change when you move it.")
    for alias in own_aliases:
        _show_alias(alias)
    _show_form(model)
    _show_family(every, own_aliases)


def _show_alias(alias: AliasCard) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(plain(alias.name))
        if st.button("Remove", key=f"alias.remove.{alias.name}", type="tertiary", disabled=cannot_change()):
            apply(
                lambda session: aliases.delete_alias(session, alias.name),
                f"{alias.name} is removed; {alias.model} stays.",
            )


def _show_form(model: str) -> None:
    with st.form(f"alias.{model}", clear_on_submit=True, border=False):
        name = st.text_input("New alias", placeholder=f"law{ALIAS_SIGN}production")
        if st.form_submit_button("Set the alias", disabled=cannot_change()):
            apply(
                lambda session: aliases.set_alias(session, name, model), lambda card: f"{card.name} means {model} now."
            )


def _show_family(every: list[AliasCard], own_aliases: list[AliasCard]) -> None:
    stems = {_stem(alias.name) for alias in own_aliases}
    family = [one for one in every if _stem(one.name) in stems]
    if len(family) > len(own_aliases):
        rows = [{"alias": one.name, "means": one.model, "since": clock(one.updated_at)} for one in family]
        show_table(rows, "alias_family", "Aliases of the same name, and what each means")


def _stem(alias: str) -> str:
    return alias.rpartition(ALIAS_SIGN)[0]
