"""Posteriors of all scored domains, from the API server."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from engine.config import PAPER_BLOCKS
from engine.text.split_names import HeldOutSplit
from ui.present.charts.cells import in_order_of_homes
from ui.present.charts.chart import Chart
from ui.present.charts.colours import read_looks
from ui.present.charts.posterior_maps import posterior_heatmap, posterior_paths
from ui.present.text.formatting import plain
from ui.present.text.posteriors import posterior_title, short_words
from ui.studio.analysis.posterior_passages import choose_domain, show_passages
from ui.studio.job_views.pending_jobs import empty_until_scored
from ui.studio.shared.evidence import choose_evidence
from ui.widgets.address import choose_number, choose_one
from ui.widgets.background import ask_scores
from ui.widgets.notices import explained
from ui.widgets.show_chart import clicked, show_chart
from ui.widgets.split_choice import choose_split
from workbench.formatting.shell_command import evaluate_command
from workbench.questions.posteriors import DomainPosterior, PosteriorMap, PosteriorMapRequest
from workbench.specs.requests import MixtureRequest

_TITLES = {True: "Training domains", False: "Novel domains"}  # of the experts that take part
_KEYS = {True: "training", False: "novel"}


def show_domains(saved: MixtureRequest) -> None:
    """Heatmaps of training and of novel domains, a passage of one, and how the posterior changed block by block."""
    mixture = saved.model
    question = _draw_options(saved)
    answer = (
        ask_scores("posterior_map", question, "Reading the stored scores block by block", saved) if question else None
    )
    if answer is None:
        return
    answer = _in_order_of_experts(answer)
    if not answer.domains:
        why = short_words(answer) or f"The {answer.split} text is not scored under every expert that takes part."
        empty_until_scored(why, _how_to_score(mixture, answer.split), mixture, answer.split)
        return
    st.markdown(f"**{plain(posterior_title(answer))}**")
    if short := short_words(answer):
        st.caption(plain(short))
    looks = read_looks()
    groups = {is_trained: [row for row in answer.domains if row.is_trained == is_trained] for is_trained in _TITLES}
    for is_trained, rows in groups.items():
        if rows:
            _show_heatmap(posterior_heatmap(answer, rows, _TITLES[is_trained], looks), rows, _KEYS[is_trained])
    with st.container(border=True), explained():
        show_passages(answer, saved)
    for is_trained, rows in groups.items():
        if rows:
            with st.expander(f"{_TITLES[is_trained]}, block by block", icon=":material/show_chart:"):
                picture = posterior_paths(answer, rows, _TITLES[is_trained], looks)
                show_chart(picture, f"posterior_paths_{_KEYS[is_trained]}")


def _show_heatmap(picture: Chart, rows: Sequence[DomainPosterior], name: str) -> None:
    """The heatmap. A click on a cell takes up its domain."""
    key = f"posterior_map_{name}"

    def choose() -> None:
        if (place := clicked(key)) and place[1] < len(rows):
            choose_domain(rows[place[1]].domain)

    show_chart(picture, key, choose)
    st.caption("Click a cell to read a passage of its domain below.")


def _in_order_of_experts(answer: PosteriorMap) -> PosteriorMap:
    """Rows as the columns' own domains, so that a text that is taken for its own expert's is on the diagonal."""
    rows = {row.domain: row for row in answer.domains}
    return answer.model_copy(update={"domains": [rows[name] for name in in_order_of_homes([*rows], answer.homes)]})


def _draw_options(saved: MixtureRequest) -> PosteriorMapRequest | None:
    """The choices above the heatmaps; None while the number of blocks is out of its range."""
    columns = st.columns([2, 2, 2, 1], vertical_alignment="bottom")
    evidence = choose_evidence(columns[0], "posteriors.evidence", saved.gate)
    estimate = choose_one(
        columns[1].segmented_control,
        "Estimate",
        ["updating", "mean"],
        default="updating",
        key="posteriors.estimate",
        required=True,
        help="updating: the prior that learns from block to block (paper, figure 4); mean: the mean of all blocks.",
    )
    split = choose_split(columns[2], "posteriors.split", default="dev")
    blocks, fault = choose_number(
        "Max blocks",
        key="posteriors.blocks",
        usual=PAPER_BLOCKS,
        lowest=1,
        highest=10_000,
        help="The paper: 100.",
        place=columns[3],
    )
    if fault:
        return None
    return PosteriorMapRequest(
        mixture=saved.model, evidence=evidence, estimate=estimate, split=split, num_blocks=blocks
    )


def _how_to_score(mixture: str, split: HeldOutSplit) -> str:
    return f"Choose Evaluation on the page Train, or run `{evaluate_command(mixture, split)}`."
