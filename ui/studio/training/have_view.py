"""Step 1 of the page Train: what a person has."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present.pages import CLUSTERS
from ui.present.text.formatting import listed, plain, pluralize, size
from ui.studio.forms.import_form import show_import
from ui.widgets.address import choose_one
from ui.widgets.job_form import last_job
from workbench.answers.cards import DomainCard
from workbench.errors import NotFoundError
from workbench.job_records.jobs import get_job
from workbench.registry.clusters.clusterings import list_clusterings
from workbench.registry.corpora import list_domains
from workbench.registry.database import reading
from workbench.registry.experts import list_experts

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
        domains = [one for one in list_domains(session) if (one.format == "chat") == is_chat]
    domains.sort(key=lambda one: one.name in trained)  # what has no expert yet comes first
    names = [one.name for one in domains]
    _choose_imported(names)
    chosen, goes_on = list[str](), False
    if names:
        key = f"{_DOMAINS}.{'chat' if is_chat else 'text'}"
        st.session_state[key] = [name for name in st.session_state.get(key, _usual(domains)) if name in names]
        labels = {one.name: plain(f"{one.name} (novel)" if one.role == "novel" else one.name) for one in domains}
        chosen = list(st.pills("Domains", names, selection_mode="multi", key=key, format_func=labels.__getitem__))
        st.caption(plain(_words([one for one in domains if one.name in chosen])))
        label = plain(f"Continue with {listed(chosen, 3)}" if chosen else "Continue")
        icon = ":material/arrow_forward:"
        goes_on = st.button(label, type="primary", key="train.continue", icon=icon, disabled=not chosen)
    else:
        st.caption("There is no domain with conversations yet." if is_chat else "There is no domain yet.")
    what = "conversations, as JSON lines" if is_chat else "text"
    with st.expander(f"Import {what}", expanded=not names, icon=":material/upload_file:"):
        show_import()
    return chosen if goes_on else None


def _usual(domains: Sequence[DomainCard]) -> list[str]:
    """The newest domain to train on; none where there are only novel ones, which are held back to measure on."""
    known = [one for one in domains if one.role != "novel"]
    return [max(known, key=lambda one: one.created_at).name] if known else []


def _choose_imported(names: Sequence[str]) -> None:
    """Chooses the domains of the import that has just ended on this page."""
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


def _words(domains: Sequence[DomainCard]) -> str:
    return " · ".join(
        f"{one.name}: {pluralize(one.num_documents, 'document')}, {size(one.num_bytes)}, {one.num_words:,} words"
        for one in domains[:6]
    )


def _show_clusters() -> None:
    with reading() as session:
        names = [one.name for one in list_clusterings(session)]
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
