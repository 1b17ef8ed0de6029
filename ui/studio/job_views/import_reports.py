"""Reports of imports: failed ones with cause and next step, finished ones with the records they left out."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ui.present.forms.uploads import own_names
from ui.present.jobs.failure_text import cause_of, next_step_of
from ui.present.next_step_text import with_options
from ui.present.pages import JOBS
from ui.present.text.formatting import clock, plain, pluralize, spoken
from ui.widgets.address import open_link
from ui.widgets.data_table import show_table
from ui.widgets.notices import empty, explained, keep, show_problem
from ui.widgets.rights import cannot_change
from workbench.answers.cards import CorpusCard, JobCard, RefusedRecord
from workbench.job_records import jobs as rows
from workbench.registry import corpora
from workbench.registry.database import reading, transaction
from workbench.settings import get_settings

KIND = "import-corpus"


def show_imports(imports: list[CorpusCard]) -> None:
    """Refused imports first, then a report of each corpus."""
    with reading() as session:
        failed = rows.list_jobs(session, kind=KIND, state="failed")
    refused = [job for job in failed if not _was_mended(job, imports)]
    if not imports and not refused:
        why = "Each import leaves a report here: what was read and what was refused."
        empty("Nothing has been imported yet.", why)
    for job in refused:
        _show_refusal(job)
    for corpus in imports:
        _show_import(corpus)


def source_of(source: str, text: str = "") -> str:
    """Where text came from; files that were uploaded are called as their owner called them."""
    return own_names(text or source, source, get_settings().root)


def _was_mended(job: JobCard, imports: list[CorpusCard]) -> bool:
    """Whether the same name was imported after this failure: then it is history."""
    failed_at = job.finished_at or job.created_at
    return any(one.name == job.spec.get("name") and one.created_at > failed_at for one in imports)


def _show_refusal(job: JobCard) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{plain(job.spec.get('name', job.title))}**")
            st.badge("refused", icon=":material/error:", color="red")
        st.caption(plain(f"{clock(job.finished_at or job.created_at)}; nothing was imported."))
        show_problem(spoken(cause_of(job)), next_step_of(job))
        open_link(JOBS, "See the job", {"job": job.id}, key=f"see_{job.id}")


def _show_import(corpus: CorpusCard) -> None:
    report = corpus.report
    with st.container(border=True):
        st.markdown(f"**{plain(corpus.name)}** — {plain(source_of(corpus.source))}")
        st.caption(plain(f"{pluralize(len(corpus.domains), 'domain')}; licence: {corpus.licence or 'not stated'}"))
        st.caption(plain(" ".join(report.sentences())))
        if report.anonymized:
            st.caption(plain(f"Anonymized: {_dummies(report.anonymized)}."))
        if report.refused:
            words = f"Records of {corpus.name} that were refused, and why"
            show_table([_refused_row(one, corpus.source) for one in report.refused], f"refused_{corpus.id}", words)
        _offer_deletion(corpus)


def _dummies(counts: dict[str, int]) -> str:
    counts_by_kind = [f"{name.replace('_', ' ')} {number:,}" for name, number in counts.items() if number]
    return ", ".join(counts_by_kind) or "nothing was found"


def _refused_row(refused: RefusedRecord, source: str) -> dict[str, Any]:
    reason = with_options(refused.reason)
    return {**refused.model_dump(), "path": source_of(source, refused.path or ""), "reason": reason}


def _offer_deletion(corpus: CorpusCard) -> None:
    with st.popover("Delete …", icon=":material/delete:"):
        st.markdown(
            plain(f"Deletes {corpus.name} with its domains. Not possible while an expert trained on them exists.")
        )
        if st.button("Delete for good", key=f"delete_{corpus.id}", type="primary", disabled=cannot_change()):
            with explained():
                _delete(corpus.name)


def _delete(name: str) -> None:
    with transaction() as session:
        corpora.delete_corpus(session, name)
    keep(f"{name} is deleted.")
    st.rerun()
