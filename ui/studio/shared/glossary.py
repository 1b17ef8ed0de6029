"""The glossary of the documents, to read on a page."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

GLOSSARY = Path(__file__).parents[3] / "docs" / "glossary.md"
REFUSED_HEADING = "## Refused words"  # what follows is for contributors


def glossary_text() -> str:
    """The terms as Markdown; empty for an installation without documents."""
    if not GLOSSARY.is_file():
        return ""
    terms = GLOSSARY.read_text(encoding="utf-8").partition(REFUSED_HEADING)[0]
    return terms[terms.index("\n## ") :].replace("\n## ", "\n#### ")


def show_glossary() -> None:
    """An expander with all terms."""
    if text := glossary_text():
        with st.expander("Glossary: what the terms mean", icon=":material/menu_book:"):
            st.markdown(text)
