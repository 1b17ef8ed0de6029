"""workbench search: finds what the registry holds by words."""

from __future__ import annotations

from typing import Annotated

import typer

from ui.cli.output import print_note, print_table
from ui.cli.verbs import Outcome, prints, read
from ui.present.search_hits import GROUP_TITLES, describe_rest, detail_of
from workbench.answers.search import SearchAnswer


@prints
def search(
    words: Annotated[list[str], typer.Argument(help="Words that the name, title, notes, tags, alias or id must hold.")],
) -> Outcome:
    """Search experts, mixtures, domains, seed models, clusterings, clusters, jobs and reports."""
    from workbench.analysis.search import search

    return Outcome(read(search, " ".join(words)), _print_hits)


def _print_hits(answer: SearchAnswer) -> None:
    rows = [
        (group.kind, hit.name, detail_of(group.kind, hit), hit.id[:8]) for group in answer.groups for hit in group.hits
    ]
    print_table(("Kind", "Name", "Detail", "ID"), rows, empty=f"Nothing holds “{answer.query}”.")
    for group in answer.groups:
        if rest := describe_rest(group):
            print_note(f"{GROUP_TITLES[group.kind]}: {rest}")
