"""The paper's ways to use experts side by side, asked of the API server."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ui.client import Client
from ui.present.missing_scores import gap_words
from ui.present.text.formatting import plain
from ui.present.text.inference_modes import NO_CACHED, ORACLE, WAYS, best_way, means, table_rows, trained_words
from ui.present.text.oracle_gap import oracle_gap
from ui.studio.job_views.pending_jobs import empty_until_scored
from ui.studio.shared.background import fetch_in_background
from ui.studio.shared.data_table import as_csv
from ui.studio.shared.show_chart import show_chart
from workbench.mixture_request import MixtureRequest
from workbench.settings import get_settings


def show_modes(saved: MixtureRequest, split: str) -> None:
    """Perplexities of a saved mixture on every domain under each mode, and their means."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    evidence = left.segmented_control(
        "Evidence",
        ["prefix", "last_token"],
        default="prefix",
        key="modes.evidence",
        required=True,
        help="What the posterior sees: the whole prefix (paper) or the last token (released code).",
    )
    blocks = right.number_input(
        "Dev blocks behind a cached prior", 1, 10_000, 100, key="modes.blocks", help="Exactly so many. The paper: 100."
    )
    found = _fetch(saved, split, evidence, int(blocks))
    if found is None or _is_empty(found, saved.model, split):
        return
    st.table(
        [*(_row(row["domain"], row) for row in found["domains"]), *(_row(m.title, m.by_way) for m in means(found))]
    )
    st.download_button(
        "Download as CSV",
        as_csv(list(table_rows(found))),
        file_name="modes.csv",
        mime="text/csv",
        key="modes_download",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )
    st.caption(
        "Perplexity per token, lower is better; bold is the lowest that needs no look at the answers. "
        + " ".join(f"*{'as saved' if way == 'mixture' else way}*: {told}." for way, told in WAYS.items())
        + f" *oracle*: {ORACLE}. {NO_CACHED.format(num_blocks=blocks)} {plain(trained_words(found))}"
    )


def show_oracle_gap(saved: MixtureRequest, split: str) -> None:
    """How far the mixture is from the best choice of one expert for each block."""
    found = _fetch(saved, split, "prefix")
    if found is not None and not _is_empty(found, saved.model, split):
        show_chart(oracle_gap(found["domains"]), "oracle_gap")
        st.caption(plain(f"The oracle is {ORACLE}. It is no mode one could use: it sees the text before it chooses."))


def _fetch(saved: MixtureRequest, split: str, evidence: str, blocks: int = 100) -> dict[str, Any] | None:
    def fetch() -> dict[str, Any]:
        with Client(get_settings()) as client:
            return client.modes(mixture=saved.model, split=split, evidence=evidence, num_blocks=blocks)

    request = (saved, split, evidence, blocks)
    answer: dict[str, Any] | None = fetch_in_background(
        "modes", request, fetch, "Comparing the modes on the stored scores"
    )
    return answer


def _is_empty(found: dict[str, Any], mixture: str, split: str) -> bool:
    if not found["domains"]:
        empty_until_scored(gap_words(found["experts"], split), "Evaluate the mixture once.", mixture, split)
    return not found["domains"]


def _row(title: str, by_way: Any) -> dict[str, str]:
    """One line of the table, as Markdown."""
    best = best_way(by_way)

    def told(way: str) -> str:
        number = "—" if by_way[way] is None else f"{by_way[way]:,.2f}"
        return f"**{number}**" if way == best else number

    names = {way: "as saved" if way == "mixture" else way for way in (*WAYS, "oracle")}
    return {"domain": plain(title), **{name: told(way) for way, name in names.items()}}
