"""The paper's inference modes side by side, from the API server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import streamlit as st

from engine.config import PAPER_BLOCKS
from engine.text.split_names import HeldOutSplit
from ui.present.charts.colours import read_looks
from ui.present.charts.oracle_gap import oracle_gap
from ui.present.missing_scores import gap_words
from ui.present.pages import CORPORA
from ui.present.text.formatting import plain
from ui.present.text.inference_modes import (
    ALL_WORDS,
    ORACLE,
    ByMode,
    best_mode,
    means,
    missing_words,
    mode_title,
    shown_modes,
    table_rows,
    trained_words,
)
from ui.studio.job_views.pending_jobs import empty_until_scored
from ui.studio.shared.evidence import choose_evidence
from ui.widgets.address import choose_number
from ui.widgets.background import ask_scores
from ui.widgets.data_table import as_csv
from ui.widgets.show_chart import show_chart
from workbench.formatting.number_format import perplexity
from workbench.questions.inference_modes import InferenceMode, InferenceModeComparison, InferenceModesRequest
from workbench.specs.requests import MixtureRequest


def show_modes(saved: MixtureRequest, split: HeldOutSplit) -> None:
    """Perplexities of a saved mixture on every domain under each inference mode, and their means."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    evidence = choose_evidence(left, "modes.evidence", saved.gate)
    blocks, fault = choose_number(
        "Dev blocks behind a cached prior",
        key="modes.blocks",
        usual=PAPER_BLOCKS,
        lowest=1,
        highest=10_000,
        help="Exactly this many (paper: 100).",
        place=right,
    )
    answer = None if fault else _fetch(saved, split, evidence, blocks)
    if answer is None or _is_empty(answer, saved.model, split, "modes"):
        return
    modes = shown_modes(answer)
    rows = [_row(_link(row.domain), row.by_mode(), modes) for row in answer.domains]
    st.table([*rows, *(_row(plain(mean.title), mean.by_mode, modes) for mean in means(answer))])
    st.download_button(
        "Download as CSV",
        as_csv(list(table_rows(answer))),
        file_name="inference_modes.csv",
        mime="text/csv",
        key="modes_download",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )
    st.caption(
        "Perplexity per token, lower is better; bold is the lowest but for naive, which uses the test text. "
        + " ".join(f"*{mode_title(mode)}*: {ALL_WORDS[mode]}." for mode in modes)
        + f" {plain(f'{missing_words(answer, blocks)} {trained_words(answer)}'.strip())}"
    )


def show_oracle_gap(saved: MixtureRequest, split: HeldOutSplit) -> None:
    """How far the mixture is from the best choice of one expert for each block."""
    answer = _fetch(saved, split, "prefix")
    if answer is not None and not _is_empty(answer, saved.model, split, "oracle"):
        show_chart(oracle_gap(answer.domains, read_looks().among(saved.active or ())), "oracle_gap")
        st.caption(plain(f"The oracle is {ORACLE}. It cannot be used in practice: it sees the text before it chooses."))


def _fetch(
    saved: MixtureRequest, split: HeldOutSplit, evidence: Any, blocks: int = PAPER_BLOCKS
) -> InferenceModeComparison | None:
    question = InferenceModesRequest(mixture=saved.model, split=split, evidence=evidence, num_blocks=blocks)
    return ask_scores("inference_modes", question, "Comparing the inference modes on the stored scores", saved)


def _is_empty(answer: InferenceModeComparison, mixture: str, split: HeldOutSplit, place: str) -> bool:
    if not answer.domains:
        why = gap_words(answer.experts, split)
        empty_until_scored(why, "Evaluate the mixture once.", mixture, split, place=place)
    return not answer.domains


def _link(domain: str) -> str:
    """A domain as a link to its text. A table that is wider than a phone can be scrolled by keys only with one."""
    return f"[{plain(domain)}](/{CORPORA.address}?{urlencode({'domain': domain}, quote_via=quote)})"


def _row(title: str, by_mode: ByMode, modes: Sequence[InferenceMode]) -> dict[str, str]:
    """One line of the table, as Markdown; so is its title."""
    best = best_mode(by_mode)

    def number(mode: InferenceMode) -> str:
        value = by_mode[mode]
        shown = perplexity(value)
        return f"**{shown}**" if mode == best else shown

    return {"domain": title, **{mode_title(mode): number(mode) for mode in modes}}
