"""Corpora: domains as in DEMix table 1, their documents, the import form, and reports of imports."""

from __future__ import annotations

import streamlit as st

from engine.text.split_names import SPLITS, Split
from ui.present.forms.readable_folders import own_names
from ui.present.jobs.failure_text import cause_of, next_step_of
from ui.present.next_step_text import with_options
from ui.present.next_steps import STEP_AFTER
from ui.present.pages import CORPORA, JOBS
from ui.present.splits import SPLIT_RULE, split_rows
from ui.present.text.formatting import clock, plain, plain_with_code, pluralize, short, size
from ui.studio.forms.import_form import show_import
from ui.studio.job_views.pending_jobs import empty_until
from ui.studio.shared.examples import show_example
from ui.widgets.address import choose_one, open_link
from ui.widgets.charts_and_tables import show_table
from ui.widgets.fields import draw_number
from ui.widgets.notices import empty, explain_problems, offer_deletion, show_problem
from ui.widgets.page_head import show_head, show_next_step
from workbench.answers.cards import CorpusCard, DomainCard, JobCard
from workbench.job_records import jobs as rows
from workbench.registry import corpora
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

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
        show_problem(plain_with_code(cause_of(job)), next_step_of(job))
        open_link(JOBS, "See the job", {"job": job.id}, key=f"see_{job.id}")


def _show_import(corpus: CorpusCard) -> None:
    report = corpus.report
    with st.container(border=True):
        st.markdown(f"**{plain(corpus.name)}** — {plain(source_of(corpus.source))}")
        st.caption(plain(f"{pluralize(len(corpus.domains), 'domain')}; licence: {corpus.licence or 'not stated'}"))
        st.caption(plain(" ".join(report.sentences())))
        if report.anonymized:
            counts = [f"{name.replace('_', ' ')} {number:,}" for name, number in report.anonymized.items() if number]
            st.caption(plain(f"Anonymized: {', '.join(counts) or 'nothing was found'}."))
        if report.refused:
            words = f"Records of {corpus.name} that were refused, and why"
            show_table(
                [
                    {
                        **one.model_dump(),
                        "path": source_of(corpus.source, one.path or ""),
                        "reason": with_options(one.reason),
                    }
                    for one in report.refused
                ],
                f"refused_{corpus.id}",
                words,
            )
        offer_deletion(
            plain(f"Deletes {corpus.name} with its domains. Not possible while an expert trained on them exists."),
            f"delete_{corpus.id}",
            lambda session: corpora.delete_corpus(session, corpus.name),
            f"{corpus.name} is deleted.",
        )


PARTS = DOMAINS, IMPORT, REPORTS = "Domains", "Import text", "Imports & what was refused"
PREVIEW_DOCUMENTS = 3
PREVIEW_CHARACTERS = 900


def show() -> None:
    """Draws the page."""
    right = show_head(CORPORA)
    with reading() as session:
        domains, imports = corpora.list_domains(session), corpora.list_corpora(session)
    part = choose_one(
        st.segmented_control, "Part", PARTS, default=DOMAINS, key="part", required=True, label_visibility="collapsed"
    )
    if domains and part == DOMAINS:
        show_next_step(right, STEP_AFTER[CORPORA])
    if part == DOMAINS:
        _show_domains(domains)
    elif part == IMPORT:
        show_import()
    else:
        show_imports(imports)


def _show_domains(domains: list[DomainCard]) -> None:
    if not domains:
        step = "Bring in a file, a folder or a data set."
        empty_until("import-corpus", "There is no text yet.", step, CORPORA.script, IMPORT, {"part": IMPORT})
        show_example(CORPORA)
        return
    st.markdown("## What the experts can learn: one row for each domain")
    show_table([_domain_row(domain) for domain in domains], "domains", "Domains with their sizes and provenance")
    names = [domain.name for domain in domains]
    name = choose_one(st.selectbox, "Domain", names, key="domain")
    _show_domain(next(domain for domain in domains if domain.name == name))


def _domain_row(domain: DomainCard) -> dict[str, object]:
    return {
        "domain": domain.name,
        "documents": domain.num_documents,
        "words (by white space)": domain.num_words,
        "bytes": domain.num_bytes,
        "role": domain.role,
        "format": domain.format,
        "provenance": source_of(domain.source),
        "licence": domain.licence or "not stated",
        "corpus": domain.corpus,
    }


def _show_domain(domain: DomainCard) -> None:
    show_table(
        list(split_rows(domain)), f"splits_{domain.id}", f"How {domain.name} is split into training and held-out text"
    )
    st.caption(plain(SPLIT_RULE))
    st.caption(plain(f"{size(domain.num_bytes)} of text; SHA-256 of the documents {short(domain.data_sha256)}…"))
    split = choose_one(st.segmented_control, "Documents of", SPLITS, default="train", key="split", required=True)
    number, fault = draw_number(
        "First document",
        key=f"first.{domain.id}",
        default=1,
        lowest=1,
        highest=max(1, domain.num_documents),
        step=PREVIEW_DOCUMENTS,
    )
    if not fault:
        with explain_problems():
            _show_documents(domain, split, number - 1)


def _show_documents(domain: DomainCard, split: Split, first: int) -> None:
    with reading() as session:
        storage = get_storage()
        documents = list(corpora.preview_documents(session, storage, domain.name, split, PREVIEW_DOCUMENTS, first))
    if not documents:
        st.caption(plain(f"There is no document {first + 1} in this part."))
    for column, document in zip(st.columns(PREVIEW_DOCUMENTS), documents, strict=False):
        with column.container(border=True):
            st.caption(plain(source_of(domain.source, document.source or "no source stated")))
            text = document.text
            st.text(text[:PREVIEW_CHARACTERS] + ("…" if len(text) > PREVIEW_CHARACTERS else ""))


if __name__ == "__main__":
    show()
