"""Train in three steps: what do you have, what do you want, check and start.

`/train?kind=…` opens the third, and `/train?clone=JOB` opens it with every field as that job had it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ui.kinds.catalog import command_of, train_forms
from ui.kinds.form import Need, TrainForm
from ui.present.forms.form_choices import is_untrained, offers_now, proposed_answers
from ui.present.forms.questions import Offers
from ui.present.pages import CLUSTERS, JOBS, TRAIN
from ui.present.text.formatting import listed, plain
from ui.studio.job_views.job_line import show_outcome
from ui.studio.job_views.job_view import show_last
from ui.studio.job_views.pending_jobs import empty_until
from ui.studio.training.clone_view import Clone, fill_in, read_clone, show_origin, show_plain_form
from ui.studio.training.want_view import CLUSTER_PLAN, TrainingOption, rows_for, show_have, show_want
from ui.widgets.address import fresh, go_to, note
from ui.widgets.job_form import last_job, show_job_form
from ui.widgets.notices import keep, show_problem
from ui.widgets.page_head import show_head
from workbench.job_records.jobs import get_job
from workbench.kinds.kind import known_kinds
from workbench.registry.database import reading

_KIND, _TEXT = "train.kind", "train.text"  # in the session, because the widgets of a closed step forget
_CLONE = "train.clone"  # the job that the open form is filled in from
_LINK = "train.what"  # the title of a form, which a link on another page leaves
_TEXT_FIELDS = (("domain",), ("domains",))  # of a form
_HAVE, _WANT, _CHECK = "What do you have?", "What do you want?", "Check and start"


def show() -> None:
    """Draws the page: the steps that are done as a line each, and the one that is open."""
    show_head(TRAIN)
    offers, forms = offers_now(), train_forms()
    _show_unknown(forms)
    _recall(offers, forms)
    kind, domains = st.session_state.get(_KIND, ""), st.session_state.get(_TEXT, [])
    note("kind", [kind] if kind else [])
    note("domain", domains)
    note("method", _method_of_address(kind, forms))
    note("clone", [clone.job_id] if kind and (clone := _clone()) else [])
    nothing: dict[str, Any] = {_KIND: "", _TEXT: []}
    if kind:
        _show_done(1, _HAVE, listed(domains, 3) or "the text chosen in the form", "Change what you have", nothing)
        _show_done(2, _WANT, _title_of(kind, forms, offers), "Change what you want", {_KIND: ""})
        _show_step(3, _CHECK)
        _show_check(kind, offers, forms)
    elif domains:
        _show_done(1, _HAVE, listed(domains, 3), "Change what you have", nothing)
        _show_step(2, _WANT)
        _show_want(offers, forms)
    else:
        _show_step(1, _HAVE)
        st.caption("Every choice can be undone. Step 2 can measure what each costs. No training starts before step 3.")
        _show_have()
        _show_others(offers, forms)


def _recall(offers: Offers, forms: Mapping[str, TrainForm]) -> None:
    """Takes what a link left in the session, or what the address holds."""
    kinds = {form.title: kind for kind, form in forms.items()}
    linked = kinds.get(st.session_state.pop(_LINK, ""))
    if (known := fresh("domain")) is not None:
        st.session_state[_TEXT] = [name for name in known if name in offers["domain"]]
    if (given := fresh("kind")) is not None:
        st.session_state[_KIND] = given[-1] if given and given[-1] in forms else ""
    kind = st.session_state.get(_KIND, "")
    if (given := fresh("method")) and given[-1] in _methods_of(kind, forms):
        st.session_state[f"{kind}.method"] = given[-1]
    if known and (kind := st.session_state.get(_KIND)):
        _fill_in_text(kind, offers)
    if linked:
        _open(linked, {})
        _fill(linked, _first_method(linked, offers, forms) | _proposal(linked, offers), keep=True)
    if given := fresh("clone"):
        _open_clone(given[-1], offers)
    st.session_state[_TEXT] = [name for name in st.session_state.get(_TEXT, []) if name in offers["domain"]]


def _show_unknown(forms: Mapping[str, TrainForm]) -> None:
    """Explains an address that names a kind of training that is not there."""
    kind = st.query_params.get("kind")
    if kind and kind not in forms and "clone" not in st.query_params:
        show_problem(f"There is no training of the kind “{plain(kind)}”.", "Choose what you have, then what you want.")


def _methods_of(kind: str, forms: Mapping[str, TrainForm]) -> list[str]:
    """The methods that a form offers."""
    return list(forms[kind].methods()) if kind in forms else []


def _method_of_address(kind: str, forms: Mapping[str, TrainForm]) -> list[str]:
    """The method of the open form, unless it is the usual one."""
    methods = _methods_of(kind, forms)
    method = st.session_state.get(f"{kind}.method")
    return [method] if method in methods[1:] else []


def _open_clone(job_id: str, offers: Offers) -> None:
    """Opens the form of a job's kind with its fields."""
    clone = read_clone(job_id, offers)
    if clone is not None:
        _open(clone.kind, {})
        fill_in(clone)
        st.session_state[_CLONE] = clone


def _clone() -> Clone | None:
    """The clone that the open form is of."""
    clone: Clone | None = st.session_state.get(_CLONE)
    return clone if clone is not None and clone.kind == st.session_state.get(_KIND) else None


def _title_of(kind: str, forms: Mapping[str, TrainForm], offers: Offers) -> str:
    """What the open form makes, in the words of step 2 where its method is one of the rows there."""
    if kind not in forms:
        return known_kinds()[kind].title
    usual = next(iter(_methods_of(kind, forms)), None)
    method = st.session_state.get(f"{kind}.method")
    outcomes = forms[kind].outcomes
    rows = (row for row in outcomes if method is None or row.answers(offers).get(("method",), usual) == method)
    return next((row.title for row in rows), forms[kind].title)


def _open(kind: str, answers: Mapping[tuple[str, ...], Any]) -> None:
    st.session_state[_KIND], st.session_state[_CLONE] = kind, None
    _fill(kind, answers)


def _fill(kind: str, answers: Mapping[tuple[str, ...], Any], *, keep: bool = False) -> None:
    """Puts answers into a form; with `keep`, only where it has none."""
    for path, value in answers.items():
        key = ".".join((kind, *path))
        if not (keep and key in st.session_state):
            st.session_state[key] = value


def _fill_in_text(kind: str, offers: Offers) -> None:
    """Puts the domains of the address into a form, whatever it held; what else is proposed only where it is empty."""
    proposal = _proposal(kind, offers)
    _fill(kind, {path: value for path, value in proposal.items() if path in _TEXT_FIELDS})
    _fill(kind, proposal, keep=True)


def _proposal(kind: str, offers: Offers) -> dict[tuple[str, ...], Any]:
    """The text in hand and a free name as answers of a form; nothing without text."""
    if not (domains := st.session_state.get(_TEXT)):
        return {}
    spec = known_kinds()[kind].spec
    taken = {*offers["mixture"], *offers["experts"], *offers["seed_model"]}
    return proposed_answers(spec, domains, {}, taken, {})


# the steps ----------------------------------------------------------------------------------------


def _show_step(number: int, title: str) -> None:
    st.header(f":material/counter_{number}: {title}", anchor=False)


def _show_done(number: int, title: str, what: str, label: str, state: Mapping[str, Any]) -> None:
    """A step that is done; its button goes back to it, with this state."""
    with st.container(horizontal=True, vertical_alignment="center", key=f"step_done_{number}"):
        st.markdown(f":material/check_circle: **{title}**", width="content")
        st.badge(plain(what), color="gray")
        change = st.session_state.update
        st.button(label, type="tertiary", on_click=change, args=(state,), key=f"train.change.{number}")


def _show_have() -> None:
    chosen = show_have()
    if isinstance(chosen, tuple):
        kind, widgets = chosen
        _open(kind, {})
        st.session_state.update(widgets)
        st.rerun()
    if chosen:
        st.session_state[_TEXT] = chosen
        st.rerun()


def _show_want(offers: Offers, forms: Mapping[str, TrainForm]) -> None:
    rows = rows_for(st.session_state[_TEXT], offers, forms)
    chosen = show_want(rows)
    if chosen is not None:
        _go_on(chosen, offers, forms)
    _show_others(offers, forms, {row.kind for row in rows})


def _go_on(row: TrainingOption, offers: Offers, forms: Mapping[str, TrainForm]) -> None:
    """Opens the form of a row, or first that of what it needs."""
    if row.kind == CLUSTER_PLAN and (row.need is None or row.need.kind not in forms):
        st.session_state.update({f"{CLUSTER_PLAN}.{path[-1]}": value for path, value in row.answers.items()})
        _open_clusters(row.answers)
    if row.need is not None and row.need.page is not None:
        go_to(row.need.page)
    kind = row.need.kind if row.need is not None and row.need.kind in forms else row.kind
    _open(kind, row.answers if kind == row.kind else _proposal(kind, offers))
    st.rerun()


def _open_clusters(answers: Mapping[tuple[str, ...], Any]) -> None:
    """The page Clusters: its form that trains on clusters, or the one that finds them."""
    name = answers.get(("clustering",))
    state = {"clusters.name": name, "clusters.view": "Train on them"} if name else {"clusters.part": "Find clusters"}
    st.session_state.update(state)
    go_to(CLUSTERS)


def _show_others(offers: Offers, forms: Mapping[str, TrainForm], shown: Any = ()) -> None:
    """Every other form, as a row of buttons."""
    st.caption("Also here:")
    with st.container(horizontal=True, key="train_others"):
        for kind, form in forms.items():
            if kind not in shown:
                given = kind, _first_method(kind, offers, forms)
                st.button(plain(form.title), type="tertiary", key=f"train.open.{kind}", on_click=_open, args=given)


def _first_method(kind: str, offers: Offers, forms: Mapping[str, TrainForm]) -> dict[tuple[str, ...], Any]:
    """The method of the row that step 2 shows first for the form's seed model; empty for a form without methods."""
    seeds = offers.get("seed_model", [])
    if not seeds or not _methods_of(kind, forms):
        return {}
    chosen = st.session_state.get(f"{kind}.seed_model")
    is_new = is_untrained(str(chosen if chosen in seeds else seeds[0]))
    first = min(forms[kind].outcomes, key=lambda row: (row.freezes_seed and is_new, row.position))
    return {path: value for path, value in first.answers(offers).items() if path == ("method",)}


def _show_check(kind: str, offers: Offers, forms: Mapping[str, TrainForm]) -> None:
    before = last_job(kind)
    if clone := _clone():
        show_origin(clone)
        if kind not in forms:
            show_plain_form(clone)
            _watch_new(kind, before)
            return
    form = forms[kind]
    st.caption(plain(form.about))
    need = next((need for need in form.needs if not offers.get(need.field)), None)
    if need is None:
        options = {"offers": offers, "label": form.label, "tucked": form.tucked, **form.draw(offers)}
        show_job_form(kind, **options, command=command_of(kind), show_outcome=show_outcome)
        _watch_new(kind, before)
    else:
        _show_need(need, offers, forms)


def _watch_new(kind: str, before: str | None) -> None:
    """Opens a job that was submitted just now on the page Jobs; beneath the form its card would be out of sight."""
    job_id = last_job(kind)
    if job_id and job_id != before:
        with reading() as session:
            keep(f"“{get_job(session, job_id).title}” is submitted.")
        go_to(JOBS, {"job": job_id})
    show_last(kind)


def _show_need(need: Need, offers: Offers, forms: Mapping[str, TrainForm]) -> None:
    if need.page is not None:
        empty_until(need.kind, need.problem, need.next_step, need.page.script, f"Go to {need.page.title}")
        return
    empty_until(need.kind, need.problem, need.next_step)
    if need.kind in forms:
        title = need.option or forms[need.kind].title
        st.button(
            plain(f"Make it: {title}"),
            type="primary",
            key="train.need",
            on_click=_open,
            args=(need.kind, _proposal(need.kind, offers)),
        )


if __name__ == "__main__":
    show()
