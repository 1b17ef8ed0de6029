"""Overlap beside specialization on the screen, with the button that measures the overlap."""

from __future__ import annotations

from typing import Any

import streamlit as st

from jobs.submit import submit
from ui.parts.asking import show_last
from ui.parts.correlations import HOW_TO_MEASURE, affinity_words
from ui.parts.gallery import show_picture
from ui.parts.notices import empty, explained
from ui.parts.on_the_way import coming, unfinished_jobs
from ui.parts.scatter import affinity_scatter
from ui.parts.words import ago, plain, spoken
from workbench.database import reading
from workbench.services.affinity import affinity
from workbench.specs import MeasureOverlap

KIND = "overlap"


def show_affinity(mixture: str | None, split: str) -> None:
    """The scatter plot, what its correlation says, and how to measure the overlap (again)."""
    with reading() as session:
        found = affinity(session, mixture, split)
    picture = affinity_scatter(found)
    if picture:
        show_picture(picture, "affinity")
    for sentence in affinity_words(found) if found["report"] else []:
        st.markdown(spoken(sentence))
    _offer_measuring(found)
    show_last(KIND)


def _offer_measuring(found: dict[str, Any]) -> None:
    if found["report"] is None:
        empty(
            "The overlap of the domains has not been measured yet.",
            f"Measure it here, or in a terminal: `{HOW_TO_MEASURE}`. It reads at most 8 MiB of each domain.",
        )
    else:
        st.caption(plain(f"The overlap was measured {ago(found['measured_at'])}."))
    is_coming = coming(unfinished_jobs(), KIND) is not None
    label = "Measure the overlap again" if found["report"] else "Measure the overlap"
    if st.button(label, icon=":material/join_inner:", key="overlap.submit", disabled=is_coming):
        with explained():
            st.session_state[f"{KIND}.job"] = submit(MeasureOverlap())
            st.rerun()
