"""The perplexity of every domain: under what is chosen, against what is saved, and under each inference mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import streamlit as st

from engine.config import PAPER_BLOCKS
from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import Looks, read_looks
from ui.present.charts.curves_and_bars import oracle_gap
from ui.present.jobs.throughput import counting_note, describe_costs
from ui.present.mixture_effect import (
    bars_of,
    describe_effect,
    describe_unlike_rows,
    difference_rows,
    effect_rows,
    effect_table,
    effect_title,
)
from ui.present.pages import CORPORA
from ui.present.text.formatting import moment, plain
from ui.present.text.inference_modes import (
    ALL_SENTENCES,
    ORACLE,
    ByMode,
    best_mode,
    describe_missing_modes,
    describe_training_domains,
    means,
    mode_title,
    shown_modes,
    table_rows,
)
from ui.present.text.measures import (
    RULE,
    describe_left_out,
    describe_measures,
    describe_missing_scores,
    describe_unrouted,
    describe_without,
)
from ui.studio.job_views.pending_jobs import empty_until_scored, offer_scoring
from ui.studio.mixtures.gate_form import choose_evidence
from ui.studio.mixtures.mixture_controls import saved_request
from ui.widgets.address import choose_number
from ui.widgets.background import ask_scores
from ui.widgets.charts_and_tables import offer_csv, show_chart
from ui.widgets.elements.components import show_domain_bars
from ui.widgets.notices import explain_problems
from workbench.analysis.missing_scores import evaluations_of
from workbench.answers.cards import MixtureCard
from workbench.formatting.number_format import perplexity
from workbench.kinds.analysis import Evaluate
from workbench.kinds.kind import parse_as
from workbench.questions.costs import expert_costs
from workbench.questions.inference_modes import InferenceMode, InferenceModeComparison, InferenceModesRequest
from workbench.questions.perplexities import MixedScores, MixRequest
from workbench.registry.database import reading
from workbench.registry.experts import get_expert
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import get_storage


def show_effect(
    mixture: MixtureCard, choice: MixtureRequest, split: HeldOutSplit, compared: MixtureRequest | None, looks: Looks
) -> None:
    """The bars with their title; `compared` is the mixture to compare with, None for the saved one itself."""
    reference = compared or saved_request(mixture)
    before = _mix("mix_saved", reference, split)
    now = before if choice == reference else _mix("mix_now", choice, split) if before else None
    if not before or not now:
        return
    if not now.domains:
        empty_until_scored(
            describe_missing_scores(choice.active or (), split), "Evaluate the mixture once.", choice.model, split
        )
        return
    has_one_tokenizer = not compared or _tokenizer(choice) == _tokenizer(compared)
    rows = effect_rows(before.domains if has_one_tokenizer else [], now.domains)
    st.header(plain(effect_title(rows)), anchor=False)
    line = f"the mixture {compared.model}" if compared else "as saved"
    st.caption(plain(f"Perplexity, lower is better. Bar: as chosen now. Line: {line}."))
    if unlike := _why_unlike(before, now, compared, has_one_tokenizer):
        st.warning(plain(unlike))
    _offer_missing(choice.model, split, now)
    _offer_distances(choice.model, split, now.unrouted, "effect")
    show_domain_bars(bars_of(rows, looks, compared.model if compared else "Saved"), "domain_bars")
    exact = f"Exact, from stored scores of the {split} split, in {moment(now.seconds)}."
    st.caption(plain(f"{describe_effect(rows)} {exact} {describe_measures(now.domains)}"))
    if compared:
        _show_differences(choice, compared)
    with st.container(horizontal=True, vertical_alignment="center"):
        _show_cost(mixture, choice)
        st.space("stretch")
        offer_csv(effect_table(rows), "mixture_bars", "mixture_bars_download")


def _offer_missing(mixture: str, split: HeldOutSplit, scores: MixedScores) -> None:
    """Which experts the numbers are without, and the button that scores them; nothing where all are scored."""
    if why := describe_left_out(scores.domains, split):
        partial = [row for row in scores.domains if row.without]
        num_tokens = sum(row.num_tokens * len(row.without) for row in partial)
        offer_scoring(why, evaluations_of(mixture, split, partial), num_tokens, "effect")


def _offer_distances(mixture: str, split: HeldOutSplit, domains: Sequence[str], key: str) -> None:
    """Which domains the gate cannot weigh yet, and the button that measures what it needs; nothing where it can."""
    if why := describe_unrouted(domains):
        offer_scoring(why, [Evaluate(mixture=mixture, split=split)], 0, f"{key}.distances")


def _why_unlike(before: MixedScores, now: MixedScores, compared: MixtureRequest | None, has_one_tokenizer: bool) -> str:
    """Why perplexities before and now are not compared, on every domain or on some; empty where they are."""
    if not has_one_tokenizer:
        return f"Not compared, since the two mixtures have different tokenizers. {RULE}"
    return describe_unlike_rows(before.domains, now.domains, compared.model if compared else "The saved mixture")


def _tokenizer(mixture: MixtureRequest) -> str:
    first = next(iter(mixture.weights or ()), None)
    with reading() as session:
        return get_expert(session, first).tokenizer_sha256 if first else ""


def _show_differences(choice: MixtureRequest, compared: MixtureRequest) -> None:
    if rows := difference_rows(choice, compared):
        st.table([{name: plain(value) for name, value in row.items()} for row in rows])
    else:
        st.caption("Both have the same experts, weights and gate.")


def _show_cost(mixture: MixtureCard, choice: MixtureRequest) -> None:
    """Every expert that is on is computed, whatever it weighs here, but for those that the mixture weighs 0."""
    on = choice.active or ()
    active = [member.expert_id for member in mixture.members if member.expert in on and member.weight > 0]
    with explain_problems(), reading() as session:
        costs = expert_costs(session, get_storage(), mixture.name, active)
        st.caption(plain(describe_costs(costs)), help=counting_note(costs))


def _mix(key: str, request: MixtureRequest, split: HeldOutSplit) -> MixedScores | None:
    with explain_problems():
        question = parse_as(MixRequest, {"mixture": request.model, **request.changes(), "split": split})
        return ask_scores(key, question, "Mixing the stored scores", request)
    return None


def show_modes(saved: MixtureRequest, split: HeldOutSplit) -> None:
    """Perplexities of a saved mixture on every domain under each inference mode, and their means."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    evidence = choose_evidence(left, "modes.evidence", saved.gate)
    blocks, fault = choose_number(
        "Dev blocks for a cached prior",
        key="modes.blocks",
        usual=PAPER_BLOCKS,
        lowest=1,
        highest=10_000,
        help="Exactly this many (paper: 100).",
        container=right,
    )
    answer = None if fault else _fetch(saved, split, evidence, blocks)
    if answer is None or _is_empty(answer, saved.model, split, "modes"):
        return
    if without := describe_without(answer.without, split):
        st.caption(plain(without))
    _offer_distances(saved.model, split, answer.unrouted, "modes")
    modes = shown_modes(answer)
    rows = [_row(_link(row.domain), row.by_mode(), modes) for row in answer.domains]
    st.table([*rows, *(_row(plain(mean.title), mean.by_mode, modes) for mean in means(answer))])
    offer_csv(list(table_rows(answer)), "inference_modes", "modes_download")
    st.caption(
        "Perplexity per token, lower is better; bold is the lowest but for naive, which uses the test text. "
        + " ".join(f"*{mode_title(mode)}*: {ALL_SENTENCES[mode]}." for mode in modes)
        + f" {plain(f'{describe_missing_modes(answer, blocks)} {describe_training_domains(answer)}'.strip())}"
    )


def show_oracle_gap(saved: MixtureRequest, split: HeldOutSplit) -> None:
    """How far the mixture is from the best choice of one expert for each block."""
    answer = _fetch(saved, split, "prefix")
    if answer is not None and not _is_empty(answer, saved.model, split, "oracle"):
        if without := describe_without(answer.without, split):
            st.caption(plain(without))
        show_chart(oracle_gap(answer.domains, read_looks().among(saved.active or ())), "oracle_gap")
        st.caption(plain(f"The oracle is {ORACLE}. It cannot be used in practice: it sees the text before it chooses."))


def _fetch(
    saved: MixtureRequest, split: HeldOutSplit, evidence: Any, blocks: int = PAPER_BLOCKS
) -> InferenceModeComparison | None:
    question = InferenceModesRequest(mixture=saved.model, split=split, evidence=evidence, num_blocks=blocks)
    return ask_scores("inference_modes", question, "Comparing the inference modes on the stored scores", saved)


def _is_empty(answer: InferenceModeComparison, mixture: str, split: HeldOutSplit, section: str) -> bool:
    if not answer.domains:
        why = describe_missing_scores(answer.experts, split)
        empty_until_scored(why, "Evaluate the mixture once.", mixture, split, section=section)
    return not answer.domains


def _link(domain: str) -> str:
    """A domain as a link to its text. A table that is wider than a phone can be scrolled by keys only with one."""
    return f"[{plain(domain)}](/{CORPORA.address}?{urlencode({'domain': domain}, quote_via=quote)})"


def _row(title: str, by_mode: ByMode, modes: Sequence[InferenceMode]) -> dict[str, str]:
    best = best_mode(by_mode)

    def number(mode: InferenceMode) -> str:
        value = by_mode[mode]
        shown = perplexity(value)
        return f"**{shown}**" if mode == best else shown

    return {"domain": title, **{mode_title(mode): number(mode) for mode in modes}}
