"""The three numbers of the page Overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from ui.present import headlines
from ui.present.headlines import Baseline, Headline, MixtureMean
from ui.present.text.formatting import plain
from ui.studio.overview.contents import Contents
from ui.widgets.background import kept_client, poll
from workbench.answers.cards import MixtureCard
from workbench.questions.perplexities import MixRequest
from workbench.settings import get_settings

MOST_MIXTURES = 8  # that are measured: the most useful
_MEASURING = "The stored scores are being mixed."


def mixture_of_page(have: Contents) -> MixtureCard | None:
    """The mixture that the numbers, the picture and the reading are about: the best one once it is measured."""
    best = _best_mean(have)
    known = {one.name: one for one in have.mixtures}
    return known[best.mixture] if isinstance(best, MixtureMean) else have.mixture


def show_numbers(have: Contents, mixture: MixtureCard | None) -> None:
    """The best mixture against dense, coverage, and the last change."""
    shown = (
        _best(have),
        headlines.coverage_headline(have.domains, have.experts, mixture),
        headlines.last_headline(have.additions, have.mixtures, have.removals),
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
    best = _best_mean(have)
    if isinstance(best, str):
        return headlines.best_headline(None, [], best)
    return headlines.best_headline(best, _baselines(have, best))


def _baselines(have: Contents, mixture: MixtureMean) -> list[Baseline]:
    shared = ((model.name, headlines.shared_with(mixture, model)) for model in have.experts)
    return [
        Baseline(name, headlines.mean_of_model(one, [card for card in have.evaluations if card.expert == name]), one)
        for name, one in shared
        if one is not None
    ]


def _best_mean(have: Contents) -> MixtureMean | str:
    """The best of the measured mixtures of several experts, or why there is none (empty: none is scored).

    Where some can be compared with a baseline, it is the best of these.
    """
    several = [one for one in have.mixtures if sum(map(headlines.takes_part, one.members)) > 1]
    mixtures = [one for one in several if have.can_be_measured(one)][:MOST_MIXTURES]
    if not mixtures:
        return ""
    tokenizers = {one.name: one.tokenizer_sha256 for one in have.experts}
    newest = max((one.created_at for one in have.evaluations), default=0.0)
    request = (tuple(one.model_dump_json() for one in mixtures), len(have.evaluations), newest)
    call = poll("overview.best", request, lambda: _measure(mixtures, tokenizers))
    if not call.is_done():
        return _MEASURING
    if call.failure is not None:
        return str(call.failure)
    compared = [one for one in call.answer if any(model.mean is not None for model in _baselines(have, one))]
    return headlines.best_of(compared or call.answer) or ""


def _measure(mixtures: Sequence[MixtureCard], tokenizers: Mapping[str, str]) -> list[MixtureMean]:
    client = kept_client(get_settings())
    answers = [(one, client.ask(MixRequest(mixture=one.name, split="test"))) for one in mixtures]
    means = [
        headlines.trained_rows(one, answer.domains, tokenizers.get(one.members[0].expert, ""))
        for one, answer in answers
    ]
    return [mean for mean in means if mean]
