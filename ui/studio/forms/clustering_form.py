"""The form that finds clusters: a field that other fields imply is hidden."""

from __future__ import annotations

import streamlit as st

from jobs.plans.clusterings import submit_find
from ui.present.forms.form_choices import missing, offers_now
from ui.present.pages import CORPORA, TRAIN
from ui.studio.forms.job_form import show_form_and_job
from ui.studio.job_views.pending_jobs import empty_until
from ui.studio.job_views.plan_view import show_plan
from ui.widgets.notices import empty
from workbench.kinds.clusters import FindClusters

_KIND = "find-clusters"
_SELDOM = (
    "max_iterations",
    "max_tokens",
    "numbers",
    "scaling",
    "dimension",
    "max_words",
    "sample_size",
    "map_size",
    "shard_size",
    "seed",
)
_METHODS = {
    "balanced": "Balanced: all of one size (the paper)",
    "unbalanced": "Unbalanced: plain k-means",
    "random": "At random: the paper's control",
}
_EMBEDDERS = {"tfidf": "Its words (the paper)", "hidden_states": "How a seed model reads it"}


def show_finding() -> None:
    """The form, and its jobs live beneath it."""
    offers = offers_now()
    if missing(offers, "domains"):
        empty_until("import-corpus", "There is no text yet.", "Import some text first.", CORPORA.script, "Go to it")
        return
    left, right = st.columns(2)
    method = left.selectbox(
        "How they are found", list(_METHODS), format_func=_METHODS.__getitem__, key=f"{_KIND}.method"
    )
    embedder = right.selectbox(
        "A document is known by", list(_EMBEDDERS), format_func=_EMBEDDERS.__getitem__, key=f"{_KIND}.embedder"
    )
    if embedder == "hidden_states" and missing(offers, "seed_model"):
        empty("There is no seed model yet.", "Make one, or take words.", TRAIN.script, "Make a seed model")
        return
    implied = {"seed_model", "max_tokens"} if embedder == "tfidf" else set()
    implied |= {"max_iterations"} if method == "random" else set()
    show_form_and_job(
        _KIND,
        offers,
        "Find clusters",
        skip=("method", "embedder", *implied),
        given={("method",): method, ("embedder",): embedder},
        tucked=_SELDOM,
        send=_send,
    )
    show_plan(_KIND)


def _send(spec: FindClusters) -> str:
    ids = st.session_state[f"{_KIND}.jobs"] = submit_find(spec)
    return ids[-1]
