"""The buttons beside the title of the page Mixtures, and how the same is done elsewhere."""

from __future__ import annotations

import json
import shlex

import streamlit as st

from ui.addresses import api_address
from ui.present.mixture_effect import changes_words, command_of
from ui.present.pages import PLAYGROUND
from ui.present.text.formatting import plain
from ui.studio.mixtures.mixture_controls import reset
from ui.studio.mixtures.mixture_edit import save_choice
from workbench.mixture_request import MixtureRequest
from workbench.registry.cards import MixtureCard
from workbench.settings import get_settings


def offer_saving(mixture: MixtureCard, saved: MixtureRequest, choice: MixtureRequest) -> None:
    """What is not saved, and the buttons that save or discard it; the primary one last."""
    is_saved = choice == saved
    can_save = bool(choice.active) and not is_saved
    if not is_saved:
        st.badge(plain(f"not saved: {changes_words(saved, choice)}"), color="orange")
    with st.container(width="content", key="other_step"):
        st.page_link(PLAYGROUND.script, label="Open in playground", icon="", query_params={"left": mixture.name})
    st.button("Discard changes", disabled=is_saved, key="mixture.reset", on_click=reset, args=(mixture,))
    if st.button("Save to the mixture", type="primary", disabled=not can_save, key="mixture.save"):
        save_choice(mixture, choice)


def show_elsewhere(saved: MixtureRequest, choice: MixtureRequest, split: str) -> None:
    """The same numbers as a command and as an HTTP call, and how the mixture is used from other programs."""
    is_saved = choice == saved
    st.caption("These are the saved settings." if is_saved else "Not saved: these settings apply to this page only.")
    with st.container(horizontal=True):
        with st.popover("The same elsewhere", icon=":material/terminal:"):
            if command := command_of(saved, choice, split):
                st.code(command, language="bash", wrap_lines=True)
            else:
                st.caption("A command uses the gate that is saved: save this one first.")
            changes = {} if is_saved else choice.changes()
            st.code(_curl("/v1/workbench/mix", {"mixture": choice.model, "split": split} | changes), language="bash")
        with st.popover("Serve", icon=":material/dns:"):
            st.markdown(plain(f"The API server serves every mixture by its name, {saved.model} as it is saved."))
            st.code(_curl("/v1/completions", {"model": saved.model, "prompt": "def ", "max_tokens": 32}), "bash")


def _curl(path: str, body: dict[str, object]) -> str:
    settings = get_settings()
    token = ' -H "Authorization: Bearer $WORKBENCH_TOKEN"' if settings.token.get_secret_value() else ""
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {api_address(settings)}{path}{token} -H 'Content-Type: application/json' -d {data}"
