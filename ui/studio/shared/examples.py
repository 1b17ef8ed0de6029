"""What each page will hold, drawn while it is empty."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from ui.present.pages import CLUSTERS, CORPORA, EXPERTS, MIXTURES, POSTERIORS, REPORTS, SELFCHECK, SPECIALIZATION, Page
from ui.present.text.formatting import plain
from ui.widgets.notices import example


class PageExample(NamedTuple):
    """A title, a sentence, and a table whose first row has the names of its columns."""

    title: str
    about: str
    table: tuple[tuple[str, ...], ...]
    numbers: tuple[tuple[str, str, str], ...] = ()  # above the table: label, value and what it means


_EXAMPLES = {
    CORPORA: PageExample(
        "three domains",
        "Each kind of text becomes a domain, which one expert can learn.",
        (
            ("domain", "documents", "words", "role", "licence"),
            ("law", "1,204", "812,300", "train", "CC0"),
            ("medicine", "930", "640,120", "train", "CC BY 4.0"),
            ("poems", "310", "48,900", "novel", "public domain"),
        ),
    ),
    CLUSTERS: PageExample(
        "three clusters",
        "Documents that use the same words lie together; each cluster can have an expert.",
        (
            ("cluster", "documents", "mostly from", "expert"),
            ("section · tenant · court", "412", "law (96 %)", "none yet"),
            ("dose · trial · patients", "411", "medicine (98 %)", "none yet"),
            ("night · heart · sea", "411", "poems (75 %)", "none yet"),
        ),
    ),
    EXPERTS: PageExample(
        "three experts",
        "What was made, how good it is on its own domain, and where it takes part.",
        (
            ("expert", "method", "perplexity ↓", "parameters", "mixtures"),
            ("first/law", "demix", "63.4", "1.4 M", "first"),
            ("first/medicine", "demix", "88.1", "1.4 M", "first"),
            ("poet", "lora", "121.7", "1.5 M", "—"),
        ),
    ),
    MIXTURES: PageExample(
        "a mixture without first/medicine",
        "Switch an expert off, and see at once what it was worth.",
        (
            ("domain", "saved", "now", "change", ""),
            ("law", "64.1", "64.0", "−0.2 %", "within 1 %"),
            ("medicine", "89.0", "211.3", "+137.4 %", "↑ worse"),
            ("poems", "118.2", "120.6", "+2.0 %", "↑ worse"),
        ),
    ),
    SPECIALIZATION: PageExample(
        "each expert is best on its own domain",
        "Perplexity of each expert (row) on each domain (column), divided by the best of the column.",
        (
            ("expert", "law", "medicine", "poems"),
            ("first/law", "**1.00**", "2.41", "1.93"),
            ("first/medicine", "3.12", "**1.00**", "2.20"),
            ("poet", "2.75", "2.98", "**1.00**"),
        ),
    ),
    POSTERIORS: PageExample(
        "the lead changes at “sings”",
        "The weight of each expert at each word of a text.",
        (
            ("token", "first/law", "first/medicine", "poet", "leads"),
            ("The", "34 %", "33 %", "33 %", "first/law"),
            ("tenant", "81 %", "7 %", "12 %", "first/law"),
            ("sings", "22 %", "2 %", "76 %", "poet"),
        ),
    ),
    REPORTS: PageExample(
        "certificate of addition, poet into first",
        "This is how a report will look. It proves that the other experts stayed as they were.",
        (
            ("domain", "before", "after", "change", "verdict"),
            ("poems", "211.2", "164.3", "−22.2 %", "better"),
            ("law", "63.4", "63.5", "+0.1 %", "no change shown"),
        ),
        (
            ("Other experts", "2 of 2", "bit-identical, SHA-256 compared"),
            ("Perplexity on poems", "211 → 164", "−22 % [−24, −20]"),
            ("On other domains", "+0.1 %", "[−0.1, +0.3]: no change shown"),
        ),
    ),
    SELFCHECK: PageExample(
        "three of the laws",
        "Each law with its measured deviation, and the same measure where the law is broken on purpose.",
        (
            ("law", "sentence", "tolerance", "measured", "if broken", "result"),
            ("L1", "a mixture with weight 1 on expert j is expert j", "bit-equal", "0", "0.683", "✓ ok"),
            ("L8", "add(j) leaves every other tensor's hash unchanged", "exact", "0", "1", "✓ ok"),
            (
                "L19",
                "mixing from stored scores is mixing from live passes",
                "1e-5",
                "2.38e-07",
                "0.412",
                "✓ ok",
            ),
        ),
    ),
}


def show_example(page: Page) -> None:
    """The example of what a page will hold."""
    one = _EXAMPLES[page]
    with example(one.title, one.about):
        if one.numbers:
            for column, (label, value, meaning) in zip(st.columns(len(one.numbers)), one.numbers, strict=True):
                column.metric(label, value, border=True)
                column.caption(plain(meaning))
        names, *rows = one.table
        st.table([dict(zip(names, row, strict=True)) for row in rows])
