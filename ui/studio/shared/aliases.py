"""The aliases of an expert or a mixture: list them, set or move one, remove one."""

from __future__ import annotations

import streamlit as st

from ui.present.text.formatting import clock, plain
from ui.widgets.changes import apply, cannot_change
from ui.widgets.data_table import show_table
from ui.widgets.on_demand import content_of
from workbench.answers.cards import AliasCard
from workbench.registry import aliases
from workbench.registry.database import reading
from workbench.schema.names import ALIAS_SIGN


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


def _show_inside(model: str, every: list[AliasCard], own: list[AliasCard]) -> None:
    st.caption("An alias means one model at a time. Clients that use it need no change when you move it.")
    for one in own:
        _show_alias(one)
    _show_form(model)
    _show_family(every, own)


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


def _show_family(every: list[AliasCard], own: list[AliasCard]) -> None:
    stems = {_stem(one.name) for one in own}
    family = [one for one in every if _stem(one.name) in stems]
    if len(family) > len(own):
        rows = [{"alias": one.name, "means": one.model, "since": clock(one.updated_at)} for one in family]
        show_table(rows, "alias_family", "Aliases of the same name, and what each means")


def _stem(alias: str) -> str:
    return alias.rpartition(ALIAS_SIGN)[0]
