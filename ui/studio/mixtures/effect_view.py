"""The perplexity of every domain under what is chosen, against what is saved or against another mixture."""

from __future__ import annotations

import streamlit as st

from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import Looks
from ui.present.comparability import RULE
from ui.present.jobs.throughput import cost_words, counted_as
from ui.present.missing_scores import gap_words
from ui.present.mixture_effect import bars_of, difference_rows, effect_rows, effect_title, effect_words, unlike_words
from ui.present.text.formatting import moment, plain
from ui.present.text.measures import measure_words
from ui.studio.job_views.pending_jobs import empty_until_scored
from ui.studio.mixtures.mixture_controls import saved_request
from ui.widgets.background import ask_scores
from ui.widgets.data_table import as_csv
from ui.widgets.elements.components import show_domain_bars
from ui.widgets.notices import explained
from workbench.answers.cards import MixtureCard
from workbench.kinds.parse_spec import parse_as
from workbench.questions.costs import expert_costs
from workbench.questions.perplexities import MixedScores, MixRequest
from workbench.registry.database import reading
from workbench.registry.experts import get_expert
from workbench.settings import get_settings
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage


def show_effect(
    mixture: MixtureCard, choice: MixtureRequest, split: HeldOutSplit, other: MixtureRequest | None, looks: Looks
) -> None:
    """The bars with their title; `other` is the mixture to compare with, None for the saved one itself."""
    reference = other or saved_request(mixture)
    before = _mix("mix_saved", reference, split)
    now = before if choice == reference else _mix("mix_now", choice, split) if before else None
    if not before or not now:
        return
    if not now.domains:
        empty_until_scored(gap_words(choice.active or (), split), "Evaluate the mixture once.", choice.model, split)
        return
    has_one_tokenizer = not other or _tokenizer(choice) == _tokenizer(other)
    rows = effect_rows(before.domains if has_one_tokenizer else [], now.domains)
    st.subheader(plain(effect_title(rows)), anchor=False)
    st.caption(plain(f"Perplexity, lower is better. Bar: as chosen now. Line: {_line(other)}."))
    if unlike := _why_unlike(before, now, other, has_one_tokenizer):
        st.warning(plain(unlike))
    show_domain_bars(bars_of(rows, looks, other.model if other else "Saved"), "domain_bars")
    took = f"in {moment(now.seconds)}"
    exact = f"Exact, from stored scores of the {split} split, {took}."
    st.caption(plain(f"{effect_words(rows)} {exact} {measure_words(now.domains)}"))
    if other:
        _show_differences(choice, other)
    with st.container(horizontal=True, vertical_alignment="center"):
        _show_cost(mixture, choice)
        st.space("stretch")
        st.download_button(
            "Download as CSV",
            as_csv(rows),
            file_name="mixture_bars.csv",
            mime="text/csv",
            key="mixture_bars_download",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
        )


def _why_unlike(before: MixedScores, now: MixedScores, other: MixtureRequest | None, has_one_tokenizer: bool) -> str:
    """Why perplexities before and now are not compared, on every domain or on some; empty where they are."""
    if not has_one_tokenizer:
        return f"Not compared, since the two mixtures have different tokenizers. {RULE}"
    return unlike_words(before.domains, now.domains, other.model if other else "The saved mixture")


def _tokenizer(mixture: MixtureRequest) -> str:
    """The tokenizer of a mixture's experts, which is one."""
    first = next(iter(mixture.weights or ()), None)
    with reading() as session:
        return get_expert(session, first).tokenizer_sha256 if first else ""


def _line(other: MixtureRequest | None) -> str:
    return f"the mixture {other.model}" if other else "as saved"


def _show_differences(choice: MixtureRequest, other: MixtureRequest) -> None:
    if rows := difference_rows(choice, other):
        st.table([{name: plain(value) for name, value in row.items()} for row in rows])
    else:
        st.caption("Both have the same experts, weights and gate.")


def _show_cost(mixture: MixtureCard, choice: MixtureRequest) -> None:
    """Every expert that is on is computed, whatever it weighs here, but for those that the mixture weighs 0."""
    on = choice.active or ()
    active = [member.expert_id for member in mixture.members if member.expert in on and member.weight > 0]
    with explained(), reading() as session:
        costs = expert_costs(session, get_storage(get_settings()), mixture.name, active)
        st.caption(plain(cost_words(costs)), help=counted_as(costs))


def _mix(key: str, request: MixtureRequest, split: HeldOutSplit) -> MixedScores | None:
    with explained():
        question = parse_as(MixRequest, {"mixture": request.model, **request.changes(), "split": split})
        return ask_scores(key, question, "Mixing the stored scores", request)
    return None
