"""The proposed parent of a new expert and the posterior behind it (DEMix §6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ui.present.charts.colours import Looks, read_looks
from ui.present.text.formatting import plain
from ui.present.text.parents import blocks_text, describe_parent, describe_unscored
from ui.widgets.background import ask_scores
from ui.widgets.charts_and_tables import show_chart
from workbench.formatting.chart_template import CaptionedChart, fill_of, name_axis, new_figure
from workbench.formatting.number_format import weight
from workbench.questions.parent_proposal import NearestRequest, score_line, unscored_parents
from workbench.registry.database import reading


def show_proposal(mixture: str, domain: str) -> None:
    """The parent that a new expert of a domain would have by the stored scores, or how to get those."""
    with reading() as session:
        unscored, num_scored = unscored_parents(session, mixture, domain)
    if unscored:
        st.caption(
            plain(describe_unscored(domain, unscored, num_scored))
            + f"`{score_line(mixture, domain)}`. "
            + "Otherwise the job chooses the parent itself, unless you name one."
        )
        return
    question = NearestRequest(mixture=mixture, domain=domain)
    if proposal := ask_scores("nearest", question, "Finding the nearest parent in the stored scores"):
        st.markdown(plain(describe_parent(proposal)))
        with st.expander("Posterior of each expert", icon=":material/account_tree:"):
            show_chart(parent_picture(proposal.posterior, proposal.parent, read_looks()), "nearest_parent")


def show_posterior(metrics: Mapping[str, Any], parent: str, key: str) -> None:
    """The posterior behind a parent, as a training leaves it; nothing where the parent was named by a person."""
    if posterior := metrics.get("parent_posterior"):
        show_chart(parent_picture(posterior, parent, read_looks()), f"{key}_parent")
        if num_blocks := metrics.get("parent_blocks"):
            st.caption(f"The mean over {blocks_text(num_blocks)} of the new domain.")


def parent_picture(posterior: Mapping[str, float], parent: str, looks: Looks) -> CaptionedChart:
    """The mean posterior of each expert on held-out text of the new domain, the greatest first."""
    ranked = sorted(posterior.items(), key=lambda pair: -pair[1])
    figure = new_figure("expert", "mean posterior at block ends (share)")
    shown = [looks.expert(name) for name, _ in ranked]
    places = name_axis(figure, "x", [name for name, _ in ranked], looks=shown)
    faded = [1.0 if name == parent else 0.4 for name, _ in ranked]
    figure.add_bar(x=places, y=[share for _, share in ranked], marker={**fill_of(shown), "opacity": faded})
    ranking = "; ".join(f"{name} {weight(share)}" for name, share in ranked[:6])
    words = f"Bar chart of the posterior on held-out text of the new domain: {ranking}. The parent is {parent}."
    first = ranked[0][0]
    title = f"Why this parent: {first} knew the new domain best"
    table = [{"expert": name, "posterior": share, "parent": name == parent} for name, share in ranked]
    return CaptionedChart(figure, title, words, table)
