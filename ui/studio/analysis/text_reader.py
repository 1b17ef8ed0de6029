"""A text read by a mixture: the strip of weights, a switch for each expert, and the words that change without some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import streamlit as st

from ui.addresses import MOST_LINKED
from ui.client import Client
from ui.present.charts.colours import read_looks
from ui.present.charts.posteriors import average_weights, lead_title, posterior_lines
from ui.present.charts.token_view import DRAWN_FROM, Part, TokenData, difference_data, weight_data
from ui.present.forms.settings_in_address import OFF
from ui.present.pages import PLAYGROUND
from ui.present.text.formatting import plain, pluralize
from ui.widgets.background import poll
from ui.widgets.charts_and_tables import show_chart
from ui.widgets.elements.components import show_tokens
from ui.widgets.notices import explain_problems
from workbench.answers.posteriors import PosteriorAnswer
from workbench.formatting.number_format import listed, number
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest

_LONGEST_SECONDS = 30.0  # for the answer without an expert; the strip shows an estimate meanwhile


@st.fragment
def show_reading(
    request: MixtureRequest, text: str, full: PosteriorAnswer, key: str, *, is_short: bool = False
) -> None:
    """Strip, switches and words of a text that `request` read, then what is different without some experts.

    Also the token under the pointer, lines and means, unless the reading `is_short`.
    """
    off = switched_off(key, full.experts)
    now = _read_without(request, text, full.experts, off, key) if off else full
    shown = [] if now is None else off  # after a failure nothing is off
    answer = now or full
    show_tokens(_drawing(full, answer, shown, off, is_short), f"{key}.tokens")
    if shown:
        show_changes(full, answer, shown, key)
    _offer_playground(request.model, text, shown)
    if is_short:
        return
    with st.expander("Lines, means and numbers", icon=":material/show_chart:"):
        looks = read_looks()
        show_chart(posterior_lines(answer.tokens, answer.weights, answer.experts, looks), key)
        show_chart(average_weights(answer.weights, answer.experts, looks), f"{key}_mean")


def _offer_playground(model: str, text: str, off: Sequence[str]) -> None:
    """The way to the playground: the mixture goes on with the text, next to itself without the experts that are off."""
    chosen: dict[str, str | list[str]] = {"left": model, "prompt": text[-MOST_LINKED:]}
    words = "Go on with this text in Playground"
    if off:
        chosen |= {"right": model, "right.set": [f"{name}:{OFF}" for name in off]}
        words = f"Go on with this text in Playground, with and without {listed(off)}"
    st.page_link(PLAYGROUND.script, label=plain(words), icon="", query_params=chosen)


def switched_off(key: str, experts: Sequence[str]) -> list[str]:
    """The experts that were switched off in the legend of `key`, as long as one is on."""
    off = [name for name in (st.session_state.get(f"{key}.tokens") or {}).get("off", ()) if name in experts]
    return off if len(off) < len(experts) else []


def _read_without(
    request: MixtureRequest, text: str, experts: Sequence[str], off: Sequence[str], key: str
) -> PosteriorAnswer | None:
    """The same text read without these experts; None after a failure, which is said."""
    smaller = replace(request, active=[name for name in experts if name not in off])

    def fetch() -> PosteriorAnswer:
        with Client(get_settings()) as client:
            return client.posterior(model=smaller.model, text=text, **smaller.changes())

    call = poll(f"{key}.without", (smaller, text), fetch)
    if call.is_done(_LONGEST_SECONDS) and call.failure is None:
        answer: PosteriorAnswer = call.answer
        return answer
    with explain_problems():
        if call.failure is not None:
            raise call.failure
    return None


def _drawing(
    full: PosteriorAnswer, now: PosteriorAnswer, off: Sequence[str], answered: Sequence[str], is_short: bool
) -> TokenData:
    tokens, experts, looks = full.tokens, full.experts, read_looks()
    titles: dict[Part, str] = {"strip": lead_title(now.weights, now.experts)}
    captions: dict[Part, str] = {
        "strip": "Posterior of each expert at each token, from left to right; heights add up to 1. "
        "Click an expert to switch it off.",
    }
    if not is_short:
        titles |= {"text": "Words coloured by their leading expert", "detail": "The token under the pointer"}
        captions["text"] = (
            f"{pluralize(len(tokens), 'token')}. Marks name the expert from there on; a stronger colour is more "
            "weight. Point at a word, or use the arrow keys."
        )
    data = weight_data(
        tokens,
        with_zeros(now, experts),
        experts,
        [looks.expert(name) for name in experts],
        parts=("strip", "legend", "text") if is_short else ("strip", "legend", "text", "detail"),
        titles=titles,
        captions=captions,
        full=full.weights if off else None,
    )
    data["off"], data["answered"] = list(off), list(answered)
    return data


def with_zeros(answer: PosteriorAnswer, experts: Sequence[str]) -> list[list[float]]:
    """The weights of an answer by these experts; 0 for those that took no part in it."""
    places = [answer.experts.index(name) if name in answer.experts else None for name in experts]
    return [[0.0 if place is None else row[place] for place in places] for row in answer.weights]


def show_changes(full: PosteriorAnswer, now: PosteriorAnswer, off: Sequence[str], key: str) -> None:
    """The words that the mixture gives less and more probability without some of its experts."""
    differences = [after - before for before, after in zip(full.logprobs, now.logprobs, strict=True)]
    without = f"the mixture without {listed(off)}"
    st.markdown(f"## {plain(describe_changes(differences, off))}")
    show_tokens(difference_data(full.tokens, differences, without, "the full mixture"), f"{key}.changes")


def describe_changes(differences: Sequence[float], off: Sequence[str]) -> str:
    """A sentence: how many tokens are less and more probable without these experts, and the mean (nats)."""
    worse = sum(value <= -DRAWN_FROM for value in differences)
    better = sum(value >= DRAWN_FROM for value in differences)
    mean = number(fmean(differences) if differences else 0.0, 2, signed=True)
    counts = f"{worse} of {pluralize(len(differences), 'token')} are less probable and {better} more"
    return f"Without {listed(off)}, {counts}; {mean} nats a token on average"
