"""The text: domains as in DEMix table 1, their documents, what was refused and why, and more to import."""

from __future__ import annotations

import streamlit as st

from ui.parts.importing import show_import
from ui.parts.notices import empty, explained
from ui.parts.tables import show_table
from ui.parts.words import counted, plain, short, size
from workbench.cards import CorpusCard, DomainCard
from workbench.database import reading
from workbench.services import corpora
from workbench.settings import get_settings
from workbench.storage import get_storage

PREVIEW_DOCUMENTS = 3
PREVIEW_CHARACTERS = 1500
PREVIEW_HEIGHT = 240


def show() -> None:
    """Draws the page."""
    st.title("Corpora & domains")
    with reading() as session:
        domains, imports = corpora.list_domains(session), corpora.list_corpora(session)
    tabs = st.tabs(["Domains", "Import text", "Imports & what was refused"], key="corpora.tabs")
    with tabs[0]:
        _show_domains(domains)
    with tabs[1]:
        show_import()
    with tabs[2]:
        _show_imports(imports)


def _show_domains(domains: list[DomainCard]) -> None:
    if not domains:
        empty("There is no text yet.", "Open the tab “Import text” and bring in a file, a folder or a data set.")
        return
    st.markdown("##### What the experts can learn: one row for each domain")
    show_table([_domain_row(domain) for domain in domains], "domains", "Domains with their sizes and provenance")
    names = [domain.name for domain in domains]
    name = st.selectbox("Domain to read in", names, key="domain")
    _show_domain(next(domain for domain in domains if domain.name == name))


def _domain_row(domain: DomainCard) -> dict[str, object]:
    return {
        "domain": domain.name,
        "documents": domain.num_documents,
        "words (by white space)": domain.num_words,
        "bytes": domain.num_bytes,
        "role": domain.role,
        "provenance": domain.source,
        "licence": domain.licence or "not stated",
        "corpus": domain.corpus,
    }


def _show_domain(domain: DomainCard) -> None:
    rows = [{"split": split, **sizes} for split, sizes in domain.splits.items()]
    show_table(rows, f"splits_{domain.id}", f"How {domain.name} is split into training and held-out text")
    st.caption(plain(f"{size(domain.num_bytes)} of text; SHA-256 of the documents {short(domain.data_sha256)}…"))
    split = st.segmented_control("Documents of", list(domain.splits), default="train", key="split", required=True)
    number = st.number_input(
        "First document",
        min_value=0,
        max_value=max(0, domain.num_documents - 1),
        step=PREVIEW_DOCUMENTS,
        key="first",
    )
    with explained():
        _show_documents(domain.name, split, int(number))


def _show_documents(name: str, split: str, first: int) -> None:
    with reading() as session:
        storage = get_storage(get_settings())
        documents = list(corpora.preview_documents(session, storage, name, split, PREVIEW_DOCUMENTS, first))
    if not documents:
        st.caption(plain(f"There is no document {first} in this part."))
    for document in documents:
        with st.container(border=True, height=PREVIEW_HEIGHT):
            st.caption(plain(document.get("source") or "no source stated"))
            text = document["text"]
            st.text(text[:PREVIEW_CHARACTERS] + ("…" if len(text) > PREVIEW_CHARACTERS else ""))


def _show_imports(imports: list[CorpusCard]) -> None:
    if not imports:
        empty(
            "Nothing has been imported yet.",
            "Each import leaves a report here: what was read and what was refused.",
        )
    for corpus in imports:
        _show_import(corpus)


def _show_import(corpus: CorpusCard) -> None:
    report = corpus.report
    refused, twice = report.get("num_refused", 0), report.get("num_duplicates", 0)
    with st.container(border=True):
        st.markdown(f"**{plain(corpus.name)}** from {plain(corpus.source)}")
        told = (
            f"{counted(len(corpus.domains), 'domain')}; {counted(refused, 'record')} refused; "
            f"{counted(twice, 'duplicate')} left out; licence: {corpus.licence or 'not stated'}"
        )
        st.caption(plain(told))
        if report.get("anonymized"):
            st.caption(plain(f"Anonymised: {_dummies(report['anonymized'])}."))
        if report.get("refused"):
            show_table(
                report["refused"],
                f"refused_{corpus.id}",
                f"Records of {corpus.name} that were refused, and why",
            )
        _offer_deletion(corpus)


def _dummies(counts: dict[str, int]) -> str:
    found = [f"{name.replace('_', ' ')} {number:,}" for name, number in counts.items() if number]
    return ", ".join(found) or "nothing was found"


def _offer_deletion(corpus: CorpusCard) -> None:
    with st.popover("Delete …", icon=":material/delete:"):
        st.markdown(plain(f"Deletes {corpus.name} with its domains. Refused while an expert was trained on them."))
        if st.button("Delete for good", key=f"delete_{corpus.id}", type="primary"):
            with explained():
                _delete(corpus.name)


def _delete(name: str) -> None:
    from ui.parts.notices import keep
    from workbench.database import transaction

    with transaction() as session:
        corpora.delete_corpus(session, name)
    keep(f"{name} is deleted.")
    st.rerun()


if __name__ == "__main__":
    show()
