"""Steps 1 and 2 of the page Train: what a person has, what they can get from it, and what that costs here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from ui.kinds.form import SEED_MODEL, UNTRAINED, Need, TrainForm, TrainOutcome
from ui.present.forms.form_choices import (
    free_name,
    is_untrained,
    proposed_answers,
    proposed_spec,
    seed_of_mixture,
    takes_text,
)
from ui.present.forms.questions import Answers, Offers, assemble
from ui.present.jobs.job_status import coming
from ui.present.jobs.throughput import operations
from ui.present.pages import CLUSTERS
from ui.present.text.formatting import duration, listed, plain, pluralize, size
from ui.studio.forms.import_form import show_import
from ui.studio.job_views.pending_jobs import unfinished_jobs
from ui.widgets.address import choose_one
from ui.widgets.charts_and_tables import NO_VALUE
from ui.widgets.job_form import LOOK_SECONDS, advance, call_of, last_job
from ui.widgets.notices import cannot_change
from workbench.answers.cards import DomainCard
from workbench.errors import BadSpecError, NotFoundError
from workbench.formatting.number_format import DASH
from workbench.job_records.jobs import get_job
from workbench.kinds.kind import known_kinds, parse_as
from workbench.registry.clusters.clusterings import list_clusterings
from workbench.registry.corpora import list_domains
from workbench.registry.database import reading
from workbench.registry.experts import list_experts
from workbench.specs.base import Spec
from workbench.specs.requests import TrainClusters

TEXT, CLUSTER, CHAT, MODEL = "Text", "A cluster", "Chat data", "An adapter or a model"
_DOMAINS = "train.domains"  # the pills
_SEEN = "train.imported"  # the import whose domains were chosen


def show_have() -> list[str] | tuple[str, dict[str, str]] | None:
    """Domains to train on, the kind of job to go on with and its widgets' values, or None while nothing is chosen."""
    have = choose_one(
        st.segmented_control, "What do you have?", [TEXT, CLUSTER, CHAT, MODEL], default=TEXT, key="have", required=True
    )
    if have == CLUSTER:
        _show_clusters()
        return None
    if have == MODEL:
        return _show_models()
    return _show_domains(is_chat=have == CHAT)


def _show_domains(*, is_chat: bool) -> list[str] | None:
    with reading() as session:
        trained = {name for expert in list_experts(session) for name in expert.domains}
        domains = [domain for domain in list_domains(session) if (domain.format == "chat") == is_chat]
    domains.sort(key=lambda one: one.name in trained)  # what has no expert yet comes first
    names = [domain.name for domain in domains]
    _choose_imported(names)
    chosen, goes_on = list[str](), False
    if names:
        key = f"{_DOMAINS}.{'chat' if is_chat else 'text'}"
        usual = _only_new(domains, trained)
        st.session_state[key] = [name for name in st.session_state.get(key, usual) if name in names]
        labels = {
            domain.name: plain(f"{domain.name} (novel)" if domain.role == "novel" else domain.name)
            for domain in domains
        }
        chosen = list(st.pills("Domains", names, selection_mode="multi", key=key, format_func=labels.__getitem__))
        described = _describe_domains([domain for domain in domains if domain.name in chosen])
        st.caption(plain(described or "Choose one domain, or several at once."))
        label = plain(f"Continue with {listed(chosen, 3)}" if chosen else "Continue")
        icon = ":material/arrow_forward:"
        goes_on = st.button(label, type="primary", key="train.continue", icon=icon, disabled=not chosen)
    else:
        st.caption("There is no domain with conversations yet." if is_chat else "There is no domain yet.")
    what = "conversations, as JSON lines" if is_chat else "text"
    with st.expander(f"Import {what}", expanded=not names, icon=":material/upload_file:"):
        show_import()
    return chosen if goes_on else None


def _only_new(domains: Sequence[DomainCard], trained: Collection[str]) -> list[str]:
    """The one domain without an expert that is not held back to measure on; of several, the user chooses."""
    new = [domain.name for domain in domains if domain.role != "novel" and domain.name not in trained]
    return new if len(new) == 1 else []


def _choose_imported(names: Sequence[str]) -> None:
    job_id = last_job("import-corpus")
    if job_id is None or st.session_state.get(_SEEN) == job_id:
        return
    try:
        with reading() as session:
            job = get_job(session, job_id)
    except NotFoundError:
        return
    made = [name for name in job.result.get("domains", []) if name in names] if job.state == "done" else []
    if made:
        st.session_state[_SEEN] = job_id
        for sort in ("chat", "text"):
            st.session_state[f"{_DOMAINS}.{sort}"] = made


def _describe_domains(domains: Sequence[DomainCard]) -> str:
    return " · ".join(
        f"{text.name}: {pluralize(text.num_documents, 'document')}, {size(text.num_bytes)}, {text.num_words:,} words"
        for text in domains[:6]
    )


def _show_clusters() -> None:
    with reading() as session:
        names = [clustering.name for clustering in list_clusterings(session)]
    if names:
        st.caption(
            plain(f"Clusterings: {listed(names)}. A model is trained on each cluster, and they are mixed (C-BTM).")
        )
    else:
        st.caption("There are no clusters yet: find them first. A model is then trained on each (C-BTM).")
    st.page_link(CLUSTERS.script, label="Train on clusters" if names else "Find clusters", icon=CLUSTERS.icon)


def _show_models() -> tuple[str, dict[str, str]] | None:
    st.caption("A LoRA folder or a fine-tuned model becomes an expert; a causal LM becomes a seed model.")
    with st.container(horizontal=True):
        if st.button("Import an expert", key="train.import", type="primary"):
            return "import-expert", {}
        if st.button("Make a seed model of a model", key="train.seed"):
            return "make-seed", {"seed.source": "folder"}
    return None


_CHOSEN, _MEASURED = "train.outcome", "train.measured"
CLUSTER_PLAN = "train-clusters"  # the form on the page Clusters: no kind of job, but a plan of several
_CLUSTERS = TrainOutcome(
    "One model for each cluster",
    "branch a seed model, train each copy on one cluster of the text, mix them",
    "C-BTM",
    "bit-identical",
    position=50,
)


@dataclass(frozen=True)
class TrainingOption:
    """What can be made of some text: the kind of job, the answers of its form, and its spec unless it is impossible."""

    kind: str
    outcome: TrainOutcome
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
    def description(self) -> str:
        """What it is, or why it is impossible; with a warning where it is worth little."""
        if self.problem:
            return self.problem
        about = f"{self.outcome.about} ({self.outcome.method})"
        return f"{about}. {UNTRAINED}" if self.is_weak else about


def rows_for(domains: Sequence[str], offers: Offers, forms: Mapping[str, TrainForm]) -> list[TrainingOption]:
    """Every kind of training on these domains, also of other packages; possible ones that are worth it come first."""
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


def _cluster_row(domains: Sequence[str], offers: Offers) -> TrainingOption:
    """One model for each cluster, of the newest clustering that has this text; it is a plan of several jobs."""
    with reading() as session:
        known = list_clusterings(session)
    card = next((one for one in known if set(domains) <= set(one.sources)), None)
    if card is None:
        need = Need("clustering", "This text has no clusters yet.", "Find them first.", "find-clusters", CLUSTERS)
        return TrainingOption(CLUSTER_PLAN, _CLUSTERS, {}, None, need, f"{need.problem} {need.next_step}")
    if not offers["seed_model"]:
        return TrainingOption(CLUSTER_PLAN, _CLUSTERS, {}, None, SEED_MODEL, _describe_need(SEED_MODEL))
    taken = {*offers["mixture"], *(name.partition("/")[0] for name in offers["experts"])}
    answers: Answers = {("clustering",): card.name, ("name",): free_name(card.name, taken)}
    try:
        spec = parse_as(TrainClusters, {**assemble(answers), "seed_model": offers["seed_model"][0]})
    except BadSpecError as bad:
        return TrainingOption(CLUSTER_PLAN, _CLUSTERS, answers, None, problem=bad.complaints[0])
    return TrainingOption(CLUSTER_PLAN, _CLUSTERS, answers, spec)


def _own_row(kind: str, form: TrainForm) -> tuple[TrainOutcome, ...]:
    """A form without rows has one, unless its jobs start from experts that are to be chosen."""
    spec = known_kinds()[kind].spec
    if "experts" in spec.model_fields:
        return ()
    return (TrainOutcome(form.title, form.about, DASH, DASH),)


def _row(kind: str, outcome: TrainOutcome, form: TrainForm, domains: Sequence[str], offers: Offers) -> TrainingOption:
    need = next((need for need in form.needs if not offers.get(need.field)), None)
    if need is not None:
        return TrainingOption(kind, outcome, {}, None, need, _describe_need(need))
    spec = known_kinds()[kind].spec
    taken = {*offers["mixture"], *offers["experts"], *(name.partition("/")[0] for name in offers["experts"])}
    answers = proposed_answers(spec, domains, offers, taken, outcome.answers(offers))
    try:
        return TrainingOption(kind, outcome, answers, proposed_spec(spec, answers))
    except BadSpecError as bad:
        return TrainingOption(kind, outcome, answers, None, problem=bad.complaints[0])


def _describe_need(need: Need) -> str:
    """What is missing, and what to do; only to wait, while an unfinished job makes it."""
    job = coming(unfinished_jobs(), need.kind)
    return f"{need.problem} " + (f"“{job.title}” makes one: wait until it is done." if job else need.next_step)


def show_want(rows: Sequence[TrainingOption]) -> TrainingOption | None:
    """The rows with their costs; the chosen one once the person goes on with it."""
    titles = [row.outcome.title for row in rows]
    if st.session_state.get(_CHOSEN) not in titles:
        st.session_state[_CHOSEN] = titles[0]
    title = st.radio(
        "What do you want?",
        titles,
        captions=[plain(row.description) for row in rows],
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


def _show_costs(rows: Sequence[TrainingOption]) -> None:
    st.markdown("**What each takes on this machine**")
    st.caption("Measured on the first updates of each with its usual settings, one after another; nothing is kept.")
    calls = [call_of(row.spec) for row in rows if row.spec is not None]
    is_incomplete = any(call is None or call.is_running() for call in calls)
    specs = [repr(row.spec) for row in rows]
    if is_incomplete and st.session_state.get(_MEASURED) == specs:
        _measuring(rows)
        return
    _table(rows)
    # Not by itself: with a real model each takes half a minute of all cores.
    if is_incomplete and st.button(
        "Measure them", key="train.measure", icon=":material/timer:", disabled=cannot_change()
    ):
        st.session_state[_MEASURED] = specs
        st.rerun()


@st.fragment(run_every=LOOK_SECONDS)
def _measuring(rows: Sequence[TrainingOption]) -> None:
    if not advance(row.spec for row in rows if row.spec is not None):
        st.rerun()
    _table(rows, "waiting")


def _table(rows: Sequence[TrainingOption], unmeasured: str = DASH) -> None:
    if len({seed for row in rows if (seed := _seed_of(row)) != DASH}) > 1:
        st.caption("These rows do not start from the same seed model, so their costs do not compare.")
    cells = [dict(_cells(row, unmeasured)) for row in rows]
    st.table(cells, border="horizontal")
    if any(text == DASH for row in cells for text in row.values()):
        st.caption(NO_VALUE)


def _cells(row: TrainingOption, unmeasured: str) -> Iterator[tuple[str, str]]:
    yield "You get", plain(row.outcome.title)
    yield "Method", plain(row.outcome.method)
    yield "Seed model", plain(_seed_of(row))
    time, *others = _costs(row, unmeasured)
    yield "Time", plain(time)
    yield from zip(("Memory", "Disk", "Cost per token"), map(plain, others), strict=True)
    yield "Other experts", plain(row.outcome.others)


def _seed_of(row: TrainingOption) -> str:
    """The seed model that a row's training starts from, directly or as a copy of an expert of a mixture."""
    if (seed := getattr(row.spec, "seed_model", None)) is not None:
        return str(seed)
    mixture = getattr(row.spec, "mixture", None)
    return (seed_of_mixture(mixture) if mixture else "") or DASH


def _costs(row: TrainingOption, unmeasured: str) -> tuple[str, str, str, str]:
    """Time, memory, disk and operations per token; in the place of the time what its probe is at."""
    call = None if row.spec is None else call_of(row.spec)
    if call is None:
        return (unmeasured if row.spec is not None else DASH, DASH, DASH, DASH)
    if call.is_running():
        return f"measuring: {call.progress}", DASH, DASH, DASH
    forecast = call.forecast
    if forecast is None or forecast.measured is None:
        problem = forecast.problem if forecast else str(call.failure)
        return f"not measured: {problem}", DASH, DASH, DASH
    measured = forecast.measured
    on_gpu = f" and {size(measured.gpu_peak_bytes)} of the GPU" if measured.gpu_peak_bytes else ""
    on_node = f" and {size(measured.node_bytes)} of each node" if measured.num_on_node else ""
    memory = f"{size(measured.peak_bytes)}{on_gpu}{on_node}" + (" does not fit" if forecast.fits is False else "")
    per_token = operations(measured.num_flops / measured.num_tokens) if measured.num_tokens else DASH
    bound = "at least " if measured.not_measured else ""
    return bound + duration(measured.seconds), memory, size(measured.disk_bytes), per_token
