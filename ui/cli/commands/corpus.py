"""Corpora: import text as domains, list, show and delete it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from engine.config import MOST
from engine.text.split_names import Split
from ui.cli.options import naming_argument, naming_option
from ui.cli.output import day, print_fields, print_table, say, say_each
from ui.cli.verbs import CREATED, NAME, Column, CommandGroup, Outcome, get_card, read
from ui.present.text.formatting import size
from workbench.answers.cards import CorpusCard

app = CommandGroup(__doc__)

CorpusName = Annotated[str, naming_argument("Name of a corpus.", "corpus")]
DomainName = Annotated[str, naming_argument("Name of a domain.", "domain")]

_SEED_HELP = "Show conversations as this seed model reads them, and which tokens count in the loss."
_COLUMNS = (
    NAME,
    Column("Domains", lambda corpus: corpus.domains),
    Column("Skipped", lambda corpus: corpus.report.num_left_out),
    Column("Licence", lambda corpus: corpus.licence),
    CREATED,
)
_DOMAIN_COLUMNS = (
    NAME,
    Column("Corpus", lambda domain: domain.corpus),
    Column("Role", lambda domain: domain.role),
    Column("Format", lambda domain: domain.format),
    Column("Documents", lambda domain: domain.num_documents),
    Column("Words", lambda domain: domain.num_words),
    Column("Size", lambda domain: domain.num_bytes, size),
    CREATED,
)


app.add_jobs("corpus")
app.add_list("corpus", _COLUMNS, "List corpora with their domains.", "Import one with: workbench corpus add NAME PATH")


app.add_list(
    "domain",
    _DOMAIN_COLUMNS,
    "List domains with their sizes in documents, words and bytes.",
    "Import text with: workbench corpus add NAME PATH",
    verb="domains",
)


@app.verb()
def show(
    name: DomainName,
    documents: int = typer.Option(3, min=0, max=MOST, help="Documents to preview."),
    split: Annotated[Split, typer.Option(help="Split to preview.")] = "train",
    seed_model: Annotated[str, naming_option(_SEED_HELP, "seed")] = "",
) -> Outcome:
    """Show a domain: its sizes, source, licence and first documents; of conversations also what counts in the loss."""
    from workbench.registry.corpora import preview_documents, preview_marked
    from workbench.store.storage import get_storage

    card = get_card("domain", name)
    preview = read(preview_documents, get_storage(), name, split, documents, 0)
    marked = read(preview_marked, get_storage(), name, seed_model, split, documents) if seed_model else []
    value = {"domain": card, "documents": list(preview)} | ({"marked": marked} if seed_model else {})
    return Outcome(value, _print)


def _print(shown: dict[str, Any]) -> None:
    from ui.present.forms.job_forecast import describe_row, row_text
    from ui.present.forms.readable_folders import own_names
    from ui.present.splits import describe_splits
    from workbench.settings import get_settings

    card, marked = shown["domain"], shown.get("marked", ())
    # Uploaded files as their owner called them.
    own = partial(own_names, source=card.source, home=get_settings().root)
    imported = {"source": own(card.source), "imported": day(card.created_at)}
    print_fields(card.model_dump(exclude={"id", "created_at"}) | imported)
    say(describe_splits(card))
    for number, row in enumerate(marked, 1):
        say(f"\n{describe_row(row, number)}\n{row_text(row)}")
    for document in () if marked else shown["documents"]:
        say(f"\n— {own(document.source or 'no source stated')}\n{document.text[:400]}")


@app.verb()
def report(name: CorpusName) -> Outcome:
    """Show an import: what was read, what was skipped, where and why."""
    return Outcome(get_card("corpus", name), _print_report)


def _print_report(card: CorpusCard) -> None:
    from ui.present.next_step_text import with_options

    print_fields(card.report.model_dump(exclude={"refused", "reasons", "file_reasons", "fields_not_read", "notes"}))
    say_each(*card.report.sentences())
    rows = [(one.path, one.line, with_options(one.reason)) for one in card.report.refused]
    if rows or card.report.is_complete:
        print_table(["File", "Line", "Reason"], rows, empty="Nothing was skipped.")


app.add_delete(
    "corpus",
    CorpusName,
    "Delete a corpus with its domains and the scores on them; refused while an expert or a job depends on them.",
)
