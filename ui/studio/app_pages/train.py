"""Train and evaluate: the forms of all kinds of job that have one here."""

from __future__ import annotations

import streamlit as st

from ui.kinds.catalog import train_forms
from ui.kinds.train_form_parts import EXPERT, JOINT, MODE, SEED
from ui.present.form_choices import offers_now
from ui.present.pages import CLUSTERS, TRAIN
from ui.present.questions import Offers
from ui.present.text.formatting import plain
from ui.studio.forms.job_form import show_last
from ui.studio.job_views.pending_jobs import empty_until
from ui.widgets.address import choose_one
from ui.widgets.page_head import show_head


def show() -> None:
    """Draws the page."""
    show_head(TRAIN)
    offers, forms = offers_now(), train_forms()
    kinds = {form.title: kind for kind, form in forms.items()}
    title = choose_one(
        st.segmented_control,
        "What do you want to make?",
        list(kinds),
        default=_first(offers),
        key="train.what",
        required=True,
    )
    form = forms[kinds[title]]
    st.caption(plain(form.about))
    st.page_link(CLUSTERS.script, label="C-BTM, one model for each cluster of text: find clusters, then train on them")
    need = next((need for need in form.needs if not offers.get(need.field)), None)
    if need is None:
        form.draw(offers)
        show_last(kinds[title])
    elif need.page is None:
        empty_until(need.kind, need.problem, need.next_step)
    else:
        empty_until(need.kind, need.problem, need.next_step, need.page.script, f"Go to {need.page.title}")


def _first(offers: Offers) -> str:
    """The form of the next step: the first thing that is missing, else another expert."""
    if not offers["seed_model"]:
        return SEED
    if offers["mixture_to_extend"]:
        return EXPERT
    return MODE if offers["mode_expert"] else JOINT


if __name__ == "__main__":
    show()
