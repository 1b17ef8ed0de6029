"""The form of a job that is submitted again with changes: every field as that job had it, and a free name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

import streamlit as st

from ui.kinds.catalog import command_of, form_of
from ui.present.forms.form_choices import free_name
from ui.present.forms.questions import Offers, QuestionForm, questions_of
from ui.present.pages import JOBS, TRAIN
from ui.present.text.formatting import listed, plain
from ui.studio.job_views.job_line import show_outcome
from ui.widgets.job_form import show_job_form
from ui.widgets.notices import explain_problems
from workbench.answers.cards import JobCard
from workbench.job_records.jobs import get_job
from workbench.kinds.kind import parse_spec
from workbench.registry.clusters.clusterings import list_clusterings
from workbench.registry.corpora import list_corpora
from workbench.registry.database import reading

_NUMBER = re.compile(r"-\d+$")  # of a clone's name


@dataclass(frozen=True)
class Clone:
    """The answers by their place in the spec, and what they name that the registry no longer holds."""

    job_id: str
    kind: str
    title: str
    answers: Mapping[tuple[str, ...], Any]
    spec: Mapping[str, Any]  # as the job had it
    offers: Offers  # those of now, and for fields without an offer the job's own values
    gone: list[str]


def clone_of(job: JobCard, offers: Offers, taken: Collection[str]) -> Clone:
    """The clone of a job; `taken` are names that it may not have. Raises BadSpecError where the spec cannot be read."""
    spec = parse_spec(job.spec)
    content = spec.model_dump(mode="json")
    offers = {**_own_values(type(spec), content, offers), **offers}
    answers, gone = dict[tuple[str, ...], Any](), list[str]()
    for question in questions_of(type(spec), offers):
        value = reduce(getitem, question.path, content)
        answers[question.path], missing = _still_offered(question, value)
        gone += missing
    if isinstance(name := answers.get(("name",)), str):
        answers["name",] = free_name(_NUMBER.sub("", name), taken)
    return Clone(job.id, job.kind, job.title, answers, content, offers, gone)


def _own_values(spec: Any, content: Mapping[str, Any], offers: Offers) -> dict[str, list[str]]:
    """Lists of names that no form offers, such as ids of documents: the job's own can be taken away."""
    questions = questions_of(spec, offers)
    lists = [
        question.path[0]
        for question in questions
        if question.answer_type == "names" and len(question.path) == 1 and not question.choices
    ]
    return {name: [str(one) for one in content.get(name) or ()] for name in lists if name not in offers}


def _still_offered(question: QuestionForm, value: Any) -> tuple[Any, list[str]]:
    """The value as its widget takes it, and the names in it that are not offered."""
    match question.answer_type:
        case "names" if all(isinstance(one, str) for one in value or ()):  # numbers have a form of their own
            gone = [one for one in value or () if one not in question.choices]
            return [one for one in value or () if one in question.choices], gone
        case "name" if value is not None and value not in question.choices:
            return question.default if question.optional else next(iter(question.choices), None), [value]
        case "text":
            return "" if value is None else str(value), []
    return value, []


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
    with explain_problems(), reading() as session:
        job = get_job(session, job_id)
        taken = {*offers["mixture"], *offers["experts"], *offers["seed_model"]}
        taken |= {clustering.name for clustering in list_clusterings(session)} | {
            corpus.name for corpus in list_corpora(session)
        }
        taken |= {name.partition("/")[0] for name in offers["experts"]}
        return clone_of(job, offers, taken)
    return None


def fill_in(clone: Clone) -> None:
    """Puts the answers into the widgets of the form."""
    for path, value in clone.answers.items():
        st.session_state[".".join((clone.kind, *path))] = value
    if form := form_of(clone.kind):
        st.session_state.update(form.widgets_of(clone.spec))


def show_origin(clone: Clone) -> None:
    """Which job the fields come from, and what of it is no longer there."""
    st.caption(plain(f"Every field is as in the job “{clone.title}”; change what you like."))
    if clone.gone:
        st.warning(plain(f"Not here any more, so left out: {listed(clone.gone, 6)}."))
    st.page_link(JOBS.script, label="That job", icon=JOBS.icon, query_params={"job": clone.job_id})


def show_plain_form(clone: Clone) -> None:
    """The form of a kind that has none on the page Train: all its fields."""
    show_job_form(clone.kind, clone.offers, "Submit it", command=command_of(clone.kind), show_outcome=show_outcome)
