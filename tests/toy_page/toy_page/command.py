"""The same in a terminal."""

from __future__ import annotations

from ui.cli.output import say
from workbench.registry.corpora import list_domains
from workbench.registry.database import reading


def word_counts() -> None:
    """List the domains with their number of words."""
    with reading() as session:
        for card in list_domains(session):
            say(f"{card.name}: {card.num_words}")
