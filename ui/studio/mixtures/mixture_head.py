"""The buttons beside the title of the page Mixtures, and how the same is done elsewhere."""

from __future__ import annotations

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.mixture_effect import changes_words, command_of
from ui.present.model_use import curl_line
from ui.present.pages import PLAYGROUND
from ui.present.text.formatting import plain
from ui.studio.mixtures.mixture_controls import base_of, is_at_fault, reset, saved_request
from ui.studio.mixtures.mixture_edit import save_choice
from ui.studio.shared.aliases import show_aliases
from ui.studio.shared.job_popover import show_job_popover
from ui.studio.shared.use_it import show_use
from ui.widgets.notices import explained, keep
from ui.widgets.on_demand import content_of
from ui.widgets.rights import cannot_change
from workbench.answers.cards import MixtureCard
from workbench.registry import mixtures
from workbench.registry.database import transaction
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest

_ELSEWHERE, _USE = "mixture.elsewhere", "mixture.use"  # popovers


def offer_saving(mixture: MixtureCard, saved: MixtureRequest, choice: MixtureRequest) -> None:
    """What is not saved, and the buttons that save or discard it; the primary one last."""
    is_saved, base = choice == saved, saved_request(base_of(mixture))
    is_base = mixture.version == base_of(mixture).version
    if not is_base and choice in (saved, base):
        reset(mixture)
        st.rerun()  # nothing is lost: these controls hold no changes of their own
    can_save = bool(choice.active) and not is_saved and is_base and not is_at_fault(mixture)
    if not is_base:
        changes = changes_words(base, saved) or "other names or notes"
        st.badge(plain(f"saved elsewhere meanwhile: {changes}"), color="red")
        st.button("Load what is saved", key="mixture.load", on_click=reset, args=(mixture,))
    if not is_saved:
        st.badge(plain(f"not saved: {changes_words(saved, choice)}"), color="orange")
    with st.container(width="content", key="other_step"):
        st.page_link(PLAYGROUND.script, label="Open in playground", icon="", query_params={"left": mixture.name})
    has_changes = not is_saved or is_at_fault(mixture)
    st.button("Discard changes", disabled=not has_changes, key="mixture.reset", on_click=reset, args=(mixture,))
    if st.button("Save to the mixture", type="primary", disabled=cannot_change() or not can_save, key="mixture.save"):
        save_choice(mixture, choice)


def show_elsewhere(saved: MixtureRequest, choice: MixtureRequest, split: HeldOutSplit) -> None:
    """The same numbers as a command and as an HTTP call, and how the mixture is used from other programs."""
    is_saved = choice == saved
    st.caption("These are the saved settings." if is_saved else "Not saved: these settings apply to this page only.")
    with st.container(horizontal=True):
        box = st.popover("The same elsewhere", icon=":material/terminal:", key=_ELSEWHERE, on_change="rerun")
        if content := content_of(box, _ELSEWHERE):
            with content:
                _show_commands(saved, choice, split)
        box = st.popover("Use it", icon=":material/dns:", key=_USE, on_change="rerun")
        if content := content_of(box, _USE):
            with content:
                show_use(saved.model, "mixture")
        show_aliases(saved.model)
        _show_copy(saved.model)
        show_job_popover("export-mixture", "mixture", saved.model, "Export")


def _show_commands(saved: MixtureRequest, choice: MixtureRequest, split: HeldOutSplit) -> None:
    if command := command_of(saved, choice, split):
        st.code(command, language="bash", wrap_lines=True)
    else:
        st.caption("A command uses the gate that is saved: save this one first.")
    changes = {} if choice == saved else choice.changes()
    body = {"mixture": choice.model, "split": split} | changes
    st.code(curl_line("/v1/workbench/mix", body, get_settings()), language="bash", wrap_lines=True)


def _show_copy(mixture: str) -> None:
    """Keeps the mixture as it is saved under a name of its own, while the first one is changed further."""
    with st.popover("Keep a copy", icon=":material/content_copy:"):
        st.caption("A copy keeps what is saved now. Point an alias at it, and go on changing this one.")
        name = st.text_input("Name of the copy", placeholder=f"{mixture}.2", key="mixture.copy.name")
        if st.button("Copy the mixture", key="mixture.copy", disabled=cannot_change()):
            with explained():
                with transaction() as session:
                    copied = mixtures.copy_mixture(session, mixture, name.strip())
                keep(f"{copied.name} holds what {mixture} was.")
                st.rerun()
