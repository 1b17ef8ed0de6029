"""A text of one's own: which expert reads it. In its tab it is kept until a mixture can read it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ui.present.charts.colours import Looks
from ui.present.pages import POSTERIORS
from ui.present.picture import look_data
from ui.present.text.formatting import plain, pluralize
from ui.widgets.background import forget, kept_client, poll
from ui.widgets.elements.components import show_expert_shares
from ui.widgets.notices import explained
from workbench.answers.cards import MixtureCard
from workbench.answers.posteriors import PosteriorAnswer
from workbench.settings import get_settings

_FIELD, _KEPT, _CALL = "overview.text", "overview.kept_text", "overview.reading"
MOST_EXPERTS = 4
MOST_LINKED = 2_000  # characters of a text in a link; the rest is left out
EXAMPLE = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software"


def show_own_text(title: str, mixture: MixtureCard | None, looks: Looks, is_first: bool) -> None:
    """The field, and who reads the text that was given; `mixture` is None while none can read."""
    with st.container(border=True, key="own_text"):
        st.subheader(title, anchor=False)
        if mixture is None:
            st.caption("It is read by itself as soon as the experts can, if you do not reload this page.")
        _draw_field(is_first, mixture is not None)
        text = st.session_state.get(_KEPT, "")
        if text and mixture is None:
            st.markdown(":material/bookmark: Your text is kept.")
        elif text and mixture:
            _show_reading(text, mixture, looks)


def _draw_field(is_first: bool, can_read: bool) -> None:
    if _FIELD not in st.session_state:
        st.session_state[_FIELD] = st.session_state.get(_KEPT, "")
    st.text_area(
        "Your text",
        key=_FIELD,
        height=130 if is_first else 90,
        label_visibility="collapsed",
        placeholder="Paste a few sentences or lines of code.",
    )
    with st.container(horizontal=True):
        st.button("Read this text" if can_read else "Read it when ready", key="overview.read", on_click=_keep)
        st.button("Take an example", key="overview.example", type="tertiary", on_click=_take_example)


def _keep() -> None:
    st.session_state[_KEPT] = st.session_state[_FIELD].strip()
    forget(_CALL)


def _take_example() -> None:
    st.session_state[_FIELD] = EXAMPLE
    _keep()


def _show_reading(text: str, mixture: MixtureCard, looks: Looks) -> None:
    def fetch() -> PosteriorAnswer:
        return kept_client(get_settings()).posterior(model=mixture.name, text=text)

    call = poll(_CALL, (mixture.name, text), fetch)
    if not call.is_done():
        st.caption("The experts are reading it.")
    elif call.failure is not None:
        with explained():
            raise call.failure
    else:
        answer: PosteriorAnswer = call.answer
        show_expert_shares(reading_rows(answer, looks), "overview_reading")
        st.caption(plain(f"Mean weight over {pluralize(len(answer.tokens), 'token')}, by {mixture.name}."))
        chosen = {"posterior.mixture": mixture.name, "posterior.text": text[:MOST_LINKED]}
        st.page_link(POSTERIORS.script, label="See every word", icon="", query_params=chosen)


def reading_rows(answer: PosteriorAnswer, looks: Looks) -> list[dict[str, Any]]:
    """The experts with the largest mean weights over a text, and all others as one row."""
    count = max(1, len(answer.weights))
    means = {name: sum(row[i] for row in answer.weights) / count for i, name in enumerate(answer.experts)}
    order = sorted(means, key=lambda name: -means[name])
    rows = [_row(name, means[name], looks) for name in order[:MOST_EXPERTS]]
    if rest := order[MOST_EXPERTS:]:
        rows.append(_row(pluralize(len(rest), "other"), sum(means[name] for name in rest), Looks()))
    return rows


def _row(name: str, share: float, looks: Looks) -> dict[str, Any]:
    return {
        "name": name,
        "look": look_data(looks.expert(name)),
        "share": round(share, 4),
        "words": f"{share:.0%}".replace("%", " %"),
    }
