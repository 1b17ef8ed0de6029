"""The loss on dev text of each expert while it was trained. It does not change any more, so it is read one time."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from workbench.answers.cards import ExpertCard
from workbench.job_records import jobs as rows
from workbench.registry.database import reading

_KEY = "overview.curves"


def curves_of(experts: Sequence[ExpertCard]) -> dict[str, Sequence[float]]:
    """The losses by expert id, in order; nothing of an expert without a recorded curve."""
    known: dict[str, Sequence[float]] = st.session_state.setdefault(_KEY, {})
    new = [one for one in experts if one.id not in known and one.job_id]
    if new:
        with reading() as session:
            for one in new:
                points = rows.metrics(session, str(one.job_id), f"dev_loss/{one.domain}")
                known[one.id] = [point.value for point in points]
    return known
