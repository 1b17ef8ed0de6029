"""What each page will hold, drawn while it is empty."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from ui.present import examples as rows
from ui.present.text.formatting import plain
from ui.widgets.example import example


def show_example_domains() -> None:
    """Domains with their sizes."""
    with example("three domains", "Each kind of text becomes a domain, which one expert can learn."):
        _show(rows.DOMAINS)


def show_example_clusters() -> None:
    """Clusters with their strongest words."""
    with example("three clusters", "Documents that use the same words lie together; each cluster can have an expert."):
        _show(rows.CLUSTERS)


def show_example_experts() -> None:
    """Experts with their perplexity on their own domain."""
    with example("three experts", "What was made, how good it is on its own domain, and where it takes part."):
        _show(rows.EXPERTS)


def show_example_mixture() -> None:
    """Shows an example of what switching an expert off changes."""
    with example("a mixture without first/medicine", "Switch an expert off, and see at once what it was worth."):
        _show(rows.MIXTURE)


def show_example_specialization() -> None:
    """Ratios of perplexities."""
    about = "Perplexity of each expert (row) on each domain (column), divided by the best of the column."
    with example("each expert is best on its own domain", about):
        _show(rows.SPECIALIZATION)


def show_example_posterior() -> None:
    """Weights at each word."""
    with example("the lead changes at “sings”", "The weight of each expert at each word of a text."):
        _show(rows.POSTERIOR)


def show_example_certificate() -> None:
    """A certificate of addition."""
    about = "This is how a report will look. It proves that the other experts stayed as they were."
    with example("certificate of addition, poet into first", about):
        numbers = (
            ("Other experts", "2 of 2", "bit-identical, SHA-256 compared"),
            ("Perplexity on poems", "211 → 164", "−22 % [−24, −20]"),
            ("On other domains", "+0.1 %", "[−0.1, +0.3]: no change shown"),
        )
        for column, (label, value, words) in zip(st.columns(3), numbers, strict=True):
            column.metric(label, value, border=True)
            column.caption(plain(words))
        _show(rows.CERTIFICATE)


def show_example_laws() -> None:
    """Laws of the self-check."""
    about = "Each law with its measured deviation, and the same measure where the law is broken on purpose."
    with example("three of the laws", about):
        _show(rows.LAWS)


def _show(table: Sequence[rows.Row]) -> None:
    st.table([dict(row) for row in table])
