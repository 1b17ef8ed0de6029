"""The three numbers of the page Overview."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present import headlines
from ui.present.headlines import Headline, MixtureMean
from ui.present.text.formatting import plain
from ui.studio.overview.contents import Contents
from ui.studio.shared.server import kept_client
from ui.widgets.background import poll
from workbench.registry.cards import MixtureCard
from workbench.settings import get_settings

MOST_MIXTURES = 8  # that are measured: the most useful
_MEASURING = "The stored scores are being mixed."


def show_numbers(have: Contents) -> None:
    """The best mixture against dense, coverage, and the last change."""
    shown = (
        _best(have),
        headlines.coverage_headline(have.domains, have.experts),
        headlines.last_headline(have.additions, have.mixtures),
    )
    for number, (column, one) in enumerate(zip(st.columns(3), shown, strict=True)):
        with column, st.container(border=True, key=f"headline_{number}", height="stretch"):
            _show(one, number)


def _show(one: Headline, number: int) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.metric(one.label, one.value, width="content", height="content")
        if one.beside:
            colour = {True: "green", False: "red", None: "gray"}[one.is_good]
            st.badge(plain(one.beside), color=colour)  # type: ignore[arg-type]
    st.caption(plain(one.words))
    if one.page:
        with st.container(key=f"small_link_{number}"):
            st.page_link(one.page.script, label=one.link, icon="", query_params=dict(one.state))


def _best(have: Contents) -> Headline:
    mixtures = [one for one in have.mixtures if _is_scored(one, have)][:MOST_MIXTURES]
    if not mixtures:
        return headlines.best_headline(None, {})
    newest = max((one.created_at for one in have.evaluations), default=0.0)
    request = (tuple(one.model_dump_json() for one in mixtures), len(have.evaluations), newest)
    call = poll("overview.best", request, lambda: _measure(mixtures))
    if not call.is_done():
        return headlines.best_headline(None, {}, _MEASURING)
    if call.failure is not None:
        return headlines.best_headline(None, {}, str(call.failure))
    best = headlines.best_of(call.answer)
    models = headlines.joint_models(have.experts) if best else []
    means = {
        model.name: headlines.mean_of_model(best, [one for one in have.evaluations if one.expert == model.name])
        for model in models
        if best
    }
    return headlines.best_headline(best, means)


def _is_scored(mixture: MixtureCard, have: Contents) -> bool:
    scored = {one.expert for one in have.evaluations if one.split == "test"}
    active = [one.expert for one in mixture.members if one.active and one.enabled and one.weight > 0]
    return bool(active) and scored.issuperset(active)


def _measure(mixtures: Sequence[MixtureCard]) -> list[MixtureMean]:
    client = kept_client(get_settings())
    answers = [(one, client.mix(mixture=one.name, split="test")) for one in mixtures]
    return [mean for one, answer in answers if (mean := headlines.trained_rows(one, answer.domains))]
