"""Draws the page."""

from __future__ import annotations

from toy_page.page import PAGE
from ui.widgets.charts_and_tables import show_table
from ui.widgets.page_head import show_head
from workbench.registry.corpora import list_domains
from workbench.registry.database import reading


def show() -> None:
    """Draws the table of the domains."""
    show_head(PAGE)
    with reading() as session:
        cards = list_domains(session)
    show_table([{"domain": card.name, "words": card.num_words} for card in cards], "word_counts", "Domains")


if __name__ == "__main__":
    show()
