"""Training on clusters: their domains, a form that trains a model on each, and a form to retrain stale ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from jobs.plans.clusterings import submit_training
from ui.present.forms.form_choices import missing, offers_now
from ui.present.forms.job_forecast import describe_missing_forecast
from ui.present.forms.options import command_line
from ui.present.forms.questions import QuestionForm, assemble, changed_answers, number_faults, questions_of
from ui.present.pages import TRAIN
from ui.present.text.clusters import describe_stale_experts
from ui.present.text.formatting import plain, pluralize
from ui.studio.job_views.job_view import show_form_and_job, show_last
from ui.studio.job_views.pending_jobs import empty_until, show_plan
from ui.widgets.changes import cannot_change
from ui.widgets.data_table import show_table
from ui.widgets.fields import draw_questions, key_of, show_command
from ui.widgets.job_form import UNNAMED
from ui.widgets.notices import explained
from ui.widgets.probe import measure, show_costs, show_first_batch
from workbench.answers.cards import ClusteringCard, ExpertCard
from workbench.answers.forecasts import Forecast
from workbench.errors import BadSpecError
from workbench.kinds.kind import parse_as
from workbench.registry import experts
from workbench.registry.database import reading
from workbench.specs.requests import TrainClusters

_FORM = "train-clusters"


def show_training(card: ClusteringCard) -> None:
    """Which clusters have a domain and an expert, and the forms that make them."""
    rows = [
        {
            "cluster": one.name,
            "domain": one.domain or "none yet",
            "experts": ", ".join(one.experts) or "none yet",
            "stale": "stale" if one.stale else "",
        }
        for one in card.clusters
    ]
    show_table(rows, "cluster_experts", "Which clusters have a domain and an expert")
    offers = offers_now()
    if missing(offers, "seed_model"):
        why, step = "There is no seed model yet.", "Every cluster's model starts as a copy of one."
        empty_until("make-seed", why, step, TRAIN.script, "Make a seed model")
        return
    questions = questions_of(TrainClusters, offers, skip=("clustering",))
    _offer_stale(card, questions)
    _show_form(card, questions, seed=offers["seed_model"][0])
    show_plan(_FORM)
    show_last(_FORM)
    with st.expander("Make domains of the clusters only", icon=":material/library_books:"):
        show_form_and_job(
            "make-cluster-domains",
            {},
            "Make domains",
            skip=("clustering", "domains"),
            given={("clustering",): card.name},
        )


def _show_form(card: ClusteringCard, questions: Sequence[QuestionForm], seed: str) -> None:
    """The form; `seed` is the default seed model, though a spec that branches from an expert names none."""
    st.markdown(f"##### Train a model on each of {pluralize(len(card.clusters), 'cluster')}, and mix them")
    st.caption(plain(TrainClusters.model_fields["training"].description))
    shown = [replace(one, default=seed) if one.path == ("seed_model",) else one for one in questions]
    left, right = st.columns([5, 2], gap="medium")
    with left:
        answers = draw_questions(_FORM, shown) | {("clustering",): card.name}
    faults = number_faults(shown, answers)
    options = changed_answers(questions, answers) | {("clustering",): card.name}
    spec_json = assemble(answers)
    parsed = _parse(spec_json)
    with right, st.container(border=True):
        expected = _expect(spec_json, parsed, faults)
        is_refused = bool(faults) or (expected is not None and expected.fits is False)
        label, icon = "Train a model on each", ":material/send:"
        starts = st.button(
            label, type="primary", icon=icon, key=f"{_FORM}.submit", disabled=cannot_change() or is_refused
        )
    with left:
        if expected is not None:
            show_first_batch(expected)
        line = command_line("train clusters", TrainClusters, ("clustering", "name"), options)
        show_command(_FORM, line, str, spec_json)
        st.caption(
            "Submitting again under the same name resumes: existing models are kept, except those of changed clusters. "
            "It is a plan of several jobs, for which HTTP has no single call: submit its jobs one by one."
        )
    if starts:
        with explained():
            if isinstance(parsed, BadSpecError):
                raise parsed
            ids = st.session_state[f"{_FORM}.jobs"] = submit_training(parsed)
            st.session_state[f"{_FORM}.job"] = ids[-1]  # the mixture of them all


def _parse(spec_json: dict[str, Any]) -> TrainClusters | BadSpecError:
    try:
        return parse_as(TrainClusters, spec_json)
    except BadSpecError as bad:
        return bad


def _expect(spec_json: dict[str, Any], parsed: TrainClusters | BadSpecError, faults: Sequence[str]) -> Forecast | None:
    """What all models together will take, measured on one of them; None as long as that is not known."""
    st.markdown("**What it will take**")
    if faults:
        st.caption(plain(f"Not measured yet. {faults[0]}"))
        return None
    spec = parsed if spec_json.get("name") else _parse({**spec_json, "name": UNNAMED})
    if isinstance(spec, BadSpecError):
        st.caption(plain(describe_missing_forecast(spec)))
        return None
    expected = measure(spec)
    if expected is not None:
        st.caption(plain(expected.title))
        show_costs(expected, TrainClusters)
    return expected


def _offer_stale(card: ClusteringCard, questions: Sequence[QuestionForm]) -> None:
    if not card.stale_experts:
        return
    with reading() as session:
        stale = [experts.get_expert(session, name) for name in card.stale_experts]
        mixtures = sorted({mixture for one in stale for mixture in one.mixtures})
        members = {name: _members(session, name) for name in mixtures}
    with st.container(border=True):
        st.warning(plain(describe_stale_experts(card)), icon=":material/update:")
        for name in mixtures:
            st.button(
                plain(f"Fill in what {name} was trained with"),
                icon=":material/edit_note:",
                key=f"{_FORM}.again.{name}",
                on_click=st.session_state.update,
                args=(_answers(name, members[name], questions),),
            )
        st.caption("Under the name of a mixture that holds them, “Train a model on each” below retrains only those.")


def _members(session: Any, mixture: str) -> list[ExpertCard]:
    return [one for one in experts.list_experts(session) if mixture in one.mixtures]


def _answers(mixture: str, members: Sequence[ExpertCard], questions: Sequence[QuestionForm]) -> dict[str, Any]:
    """The form's answers as they were for a mixture; the steps are those of all its models together."""
    first = members[0]
    options = {**first.config.get("training", {}), "name": mixture, "seed_model": first.seed}
    options["num_steps"] = sum(one.config.get("training", {}).get("num_steps", 0) for one in members)
    return {key_of(_FORM, one): options[one.path[-1]] for one in questions if options.get(one.path[-1]) is not None}
