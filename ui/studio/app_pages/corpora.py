"""Corpora: domains as in DEMix table 1, their documents, refused records, and the import form."""

from __future__ import annotations

import streamlit as st

from engine.text.split_names import SPLITS, Split
from ui.present.next_steps import STEP_AFTER
from ui.present.pages import CORPORA
from ui.present.splits import SPLIT_RULE, split_rows
from ui.present.text.formatting import plain, short, size
from ui.studio.forms.import_form import show_import
from ui.studio.job_views.import_reports import show_imports, source_of
from ui.studio.job_views.pending_jobs import empty_until
from ui.studio.shared.examples import show_example_domains
from ui.widgets.address import choose_one
from ui.widgets.data_table import show_table
from ui.widgets.notices import explained
from ui.widgets.numbers import draw_number
from ui.widgets.page_head import show_head, show_next_step
from workbench.answers.cards import DomainCard
from workbench.registry import corpora
from workbench.registry.database import reading
from workbench.settings import get_settings
from workbench.store.storage import get_storage

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
        show_example_domains()
        return
    st.markdown("##### What the experts can learn: one row for each domain")
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
        with explained():
            _show_documents(domain, split, number - 1)


def _show_documents(domain: DomainCard, split: Split, first: int) -> None:
    with reading() as session:
        storage = get_storage(get_settings())
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
