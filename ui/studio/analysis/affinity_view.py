"""Overlap beside specialization on the screen, with the button that measures the overlap."""

from __future__ import annotations

import streamlit as st

from engine.text.split_names import HeldOutSplit
from jobs.queue.submit import submit
from ui.present.charts.colours import read_looks
from ui.present.charts.scatter import affinity_scatter
from ui.present.jobs.pending_jobs import coming
from ui.present.text.correlations import HOW_TO_MEASURE, affinity_words
from ui.present.text.formatting import ago, plain, spoken
from ui.studio.forms.job_form import show_last
from ui.studio.job_views.pending_jobs import unfinished_jobs
from ui.widgets.notices import empty, explained
from ui.widgets.rights import cannot_change
from ui.widgets.show_chart import show_chart
from workbench.kinds.analysis import MeasureOverlap
from workbench.questions.affinity import Affinity, AffinityRequest
from workbench.questions.question import ask

KIND = "measure-overlap"


def show_affinity(mixture: str | None, split: HeldOutSplit) -> None:
    """The scatter plot, what its correlation says, and how to measure the overlap (again)."""
    answer = ask(AffinityRequest(mixture=mixture, split=split).answer)
    picture = affinity_scatter(answer, read_looks())
    if picture:
        show_chart(picture, "affinity")
    for sentence in affinity_words(answer) if answer.report else []:
        st.markdown(spoken(sentence))
    _offer_measuring(answer)
    show_last(KIND)


def _offer_measuring(answer: Affinity) -> None:
    if answer.measured_at is None:
        empty(
            "The overlap of the domains has not been measured yet.",
            f"Measure it here, or in a terminal: `{HOW_TO_MEASURE}`. It reads at most 8 MiB of each domain.",
        )
    else:
        st.caption(plain(f"The overlap was measured {ago(answer.measured_at)}."))
    is_coming = coming(unfinished_jobs(), KIND) is not None
    label = "Measure the overlap again" if answer.report else "Measure the overlap"
    if st.button(label, icon=":material/join_inner:", key="overlap.submit", disabled=cannot_change() or is_coming):
        with explained():
            st.session_state[f"{KIND}.job"] = submit(MeasureOverlap())
            st.rerun()
