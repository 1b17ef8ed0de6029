"""Step 2 of the page Train: what a person can get from their text, and what each costs on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from ui.kinds.screen import Answers, Need, Outcome, TrainForm
from ui.kinds.train_form_parts import SEED_MODEL, UNTRAINED
from ui.present.forms.form_choices import is_untrained, seed_of_mixture
from ui.present.forms.questions import Offers, assemble
from ui.present.forms.text_in_hand import free_name, proposed_answers, proposed_spec, takes_text
from ui.present.jobs.pending_jobs import coming
from ui.present.jobs.throughput import operations
from ui.present.pages import CLUSTERS
from ui.present.text.formatting import duration, plain, size
from ui.studio.job_views.pending_jobs import unfinished_jobs
from ui.widgets.data_table import NO_VALUE
from ui.widgets.probe import LOOK_SECONDS, advance, call_of
from workbench.errors import BadSpecError
from workbench.formatting.number_format import DASH
from workbench.kinds.kind import known_kinds
from workbench.kinds.parse_spec import parse_as
from workbench.registry.clusters.clusterings import list_clusterings
from workbench.registry.database import reading
from workbench.specs.base import Spec
from workbench.specs.requests import TrainClusters

_CHOSEN = "train.outcome"
CLUSTER_PLAN = "train-clusters"  # the form on the page Clusters: no kind of job, but a plan of several
_CLUSTERS = Outcome(
    "One model for each cluster",
    "branch a seed model, train each copy on one cluster of the text, mix them",
    "C-BTM",
    "bit-identical",
    position=50,
)


@dataclass(frozen=True)
class Row:
    """What can be made of some text: the kind of job, the answers of its form, and its spec unless it is impossible."""

    kind: str
    outcome: Outcome
    answers: Mapping[tuple[str, ...], Any]
    spec: Spec | None
    need: Need | None = None  # what must be there before
    problem: str = ""  # why it is impossible

    @property
    def is_weak(self) -> bool:
        """Whether it freezes a seed model that has not been trained."""
        seed = getattr(self.spec, "seed_model", None)
        return seed is not None and self.outcome.freezes_seed and is_untrained(seed)

    @property
    def words(self) -> str:
        """What it is, or why it is impossible; with a warning where it is worth little."""
        if self.problem:
            return self.problem
        about = f"{self.outcome.about} ({self.outcome.method})"
        return f"{about}. {UNTRAINED}" if self.is_weak else about


def rows_for(domains: Sequence[str], offers: Offers, forms: Mapping[str, TrainForm]) -> list[Row]:
    """Every kind of training on these domains, also of other packages; those that are possible and worth it come first.

    What starts from a seed model is proposed from that of the mixture that one more expert would join.
    """
    offers = _from_one_seed(offers)
    rows = [
        _row(kind, outcome, form, domains, offers)
        for kind, form in forms.items()
        if takes_text(known_kinds()[kind].spec)
        for outcome in form.outcomes or _own_row(kind, form)
    ]
    rows.append(_cluster_row(domains, offers))
    return sorted(rows, key=lambda row: (row.spec is None, row.is_weak, row.outcome.position))


def _from_one_seed(offers: Offers) -> Offers:
    """The offers with that seed model first: the costs of two rows compare only where both start from the same one."""
    seed = seed_of_mixture(offers["mixture_to_extend"][0]) if offers.get("mixture_to_extend") else ""
    return {**offers, "seed_model": sorted(offers.get("seed_model", ()), key=lambda name: name != seed)}


def _cluster_row(domains: Sequence[str], offers: Offers) -> Row:
    """One model for each cluster, of the newest clustering that has this text; it is a plan of several jobs."""
    with reading() as session:
        known = list_clusterings(session)
    card = next((one for one in known if set(domains) <= set(one.sources)), None)
    if card is None:
        need = Need("clustering", "This text has no clusters yet.", "Find them first.", "find-clusters", CLUSTERS)
        return Row(CLUSTER_PLAN, _CLUSTERS, {}, None, need, f"{need.problem} {need.next_step}")
    if not offers["seed_model"]:
        return Row(CLUSTER_PLAN, _CLUSTERS, {}, None, SEED_MODEL, _words_of(SEED_MODEL))
    taken = {*offers["mixture"], *(name.partition("/")[0] for name in offers["experts"])}
    answers: Answers = {("clustering",): card.name, ("name",): free_name(card.name, taken)}
    try:
        spec = parse_as(TrainClusters, {**assemble(answers), "seed_model": offers["seed_model"][0]})
    except BadSpecError as bad:
        return Row(CLUSTER_PLAN, _CLUSTERS, answers, None, problem=bad.complaints[0])
    return Row(CLUSTER_PLAN, _CLUSTERS, answers, spec)


def _own_row(kind: str, form: TrainForm) -> tuple[Outcome, ...]:
    """A form without rows has one, unless its jobs start from experts that are to be chosen."""
    spec = known_kinds()[kind].spec
    if "experts" in spec.model_fields:
        return ()
    return (Outcome(form.title, form.about, DASH, DASH),)


def _row(kind: str, outcome: Outcome, form: TrainForm, domains: Sequence[str], offers: Offers) -> Row:
    need = next((need for need in form.needs if not offers.get(need.field)), None)
    if need is not None:
        return Row(kind, outcome, {}, None, need, _words_of(need))
    spec = known_kinds()[kind].spec
    taken = {*offers["mixture"], *offers["experts"], *(name.partition("/")[0] for name in offers["experts"])}
    answers = proposed_answers(spec, domains, offers, taken, outcome.answers(offers))
    try:
        return Row(kind, outcome, answers, proposed_spec(spec, answers))
    except BadSpecError as bad:
        return Row(kind, outcome, answers, None, problem=bad.complaints[0])


def _words_of(need: Need) -> str:
    """What is missing, and what to do; only to wait, while an unfinished job makes it."""
    job = coming(unfinished_jobs(), need.kind)
    return f"{need.problem} " + (f"“{job.title}” makes one: wait until it is done." if job else need.next_step)


def show_want(rows: Sequence[Row]) -> Row | None:
    """The rows with their costs; the chosen one once the person goes on with it."""
    titles = [row.outcome.title for row in rows]
    if st.session_state.get(_CHOSEN) not in titles:
        st.session_state[_CHOSEN] = titles[0]
    title = st.radio(
        "What do you want?",
        titles,
        captions=[plain(row.words) for row in rows],
        key=_CHOSEN,
        label_visibility="collapsed",
    )
    chosen = rows[titles.index(title)]
    if st.button(
        plain(f"Continue: {title[:1].lower()}{title[1:]}"),
        type="primary",
        key="train.want",
        icon=":material/arrow_forward:",
        disabled=chosen.spec is None and (chosen.need is None or chosen.need.option in titles),
    ):
        return chosen
    _show_costs(rows)
    return None


def _show_costs(rows: Sequence[Row]) -> None:
    st.markdown("**What each takes on this machine**")
    st.caption("Measured on the first updates of each with its usual settings, one after another; nothing is kept.")
    calls = [call_of(row.spec) for row in rows if row.spec is not None]
    if any(call is None or call.is_running() for call in calls):
        _measuring(rows)
    else:
        _table(rows)


@st.fragment(run_every=LOOK_SECONDS)
def _measuring(rows: Sequence[Row]) -> None:
    if not advance(row.spec for row in rows if row.spec is not None):
        st.rerun()
    _table(rows)


def _table(rows: Sequence[Row]) -> None:
    if len({seed for row in rows if (seed := _seed_of(row)) != DASH}) > 1:
        st.caption("These rows do not start from the same seed model, so their costs do not compare.")
    cells = [dict(_cells(row)) for row in rows]
    st.table(cells, border="horizontal")
    if any(text == DASH for row in cells for text in row.values()):
        st.caption(NO_VALUE)


def _cells(row: Row) -> Iterator[tuple[str, str]]:
    yield "You get", plain(row.outcome.title)
    yield "Method", plain(row.outcome.method)
    yield "Seed model", plain(_seed_of(row))
    time, *others = _costs(row)
    yield "Time", plain(time)
    yield from zip(("Memory", "Disk", "Cost per token"), map(plain, others), strict=True)
    yield "Other experts", plain(row.outcome.others)


def _seed_of(row: Row) -> str:
    """The seed model that a row's training starts from, directly or as a copy of an expert of a mixture."""
    if (seed := getattr(row.spec, "seed_model", None)) is not None:
        return str(seed)
    mixture = getattr(row.spec, "mixture", None)
    return (seed_of_mixture(mixture) if mixture else "") or DASH


def _costs(row: Row) -> tuple[str, str, str, str]:
    """Time, memory, disk and operations per token; in the place of the time what its probe is at."""
    call = None if row.spec is None else call_of(row.spec)
    if call is None:
        return ("waiting" if row.spec is not None else DASH, DASH, DASH, DASH)
    if call.is_running():
        return f"measuring: {call.words}", DASH, DASH, DASH
    forecast = call.forecast
    if forecast is None or forecast.measured is None:
        problem = forecast.problem if forecast else str(call.failure)
        return f"not measured: {problem}", DASH, DASH, DASH
    measured = forecast.measured
    on_gpu = f" and {size(measured.gpu_peak_bytes)} of the GPU" if measured.gpu_peak_bytes else ""
    on_node = f" and {size(measured.node_bytes)} of each node" if measured.num_on_node else ""
    memory = f"{size(measured.peak_bytes)}{on_gpu}{on_node}" + (" does not fit" if forecast.fits is False else "")
    per_token = operations(measured.num_flops / measured.num_tokens) if measured.num_tokens else DASH
    return duration(measured.seconds), memory, size(measured.disk_bytes), per_token
