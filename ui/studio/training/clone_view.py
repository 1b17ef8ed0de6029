"""The form of a job that is submitted again with changes: every field as that job had it, and a free name."""

from __future__ import annotations

import streamlit as st

from ui.kinds.catalog import screen_of
from ui.present.forms.clone import Clone, clone_of
from ui.present.forms.questions import Offers
from ui.present.pages import JOBS, TRAIN
from ui.present.text.formatting import listed, plain
from ui.widgets.job_form import show_job_form
from ui.widgets.notices import explained
from workbench.answers.cards import JobCard
from workbench.job_records.jobs import get_job
from workbench.registry.clusters.clusterings import list_clusterings
from workbench.registry.corpora import list_corpora
from workbench.registry.database import reading


def offer_clone(job: JobCard) -> None:
    """The link to the form."""
    st.page_link(
        TRAIN.script,
        label="Clone with changes",
        icon=":material/content_copy:",
        help="Opens the form with every field as this job had it, under a free name. Nothing starts yet.",
        query_params={"clone": job.id},
    )


def read_clone(job_id: str, offers: Offers) -> Clone | None:
    """The clone of a job; None, with the reason on the page, where there is no such job or its kind is gone."""
    with explained(), reading() as session:
        job = get_job(session, job_id)
        taken = {*offers["mixture"], *offers["experts"], *offers["seed_model"]}
        taken |= {one.name for one in list_clusterings(session)} | {one.name for one in list_corpora(session)}
        taken |= {name.partition("/")[0] for name in offers["experts"]}
        return clone_of(job, offers, taken)
    return None


def fill_in(clone: Clone) -> None:
    """Puts the answers into the widgets of the form."""
    for path, value in clone.answers.items():
        st.session_state[".".join((clone.kind, *path))] = value
    if form := screen_of(clone.kind).form:
        st.session_state.update(form.widgets_of(clone.spec))


def show_origin(clone: Clone) -> None:
    """Which job the fields come from, and what of it is no longer there."""
    st.caption(plain(f"Every field is as in the job “{clone.title}”; change what you like."))
    if clone.gone:
        st.warning(plain(f"Not here any more, so left out: {listed(clone.gone, 6)}."))
    st.page_link(JOBS.script, label="That job", icon=JOBS.icon, query_params={"job": clone.job_id})


def show_plain_form(clone: Clone) -> None:
    """The form of a kind that has none on the page Train: all its fields."""
    show_job_form(clone.kind, clone.offers, "Submit it", command=screen_of(clone.kind).command)
