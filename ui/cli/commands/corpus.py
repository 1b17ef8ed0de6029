"""Corpora: import text as domains, list, show and delete it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from engine.config import MOST
from engine.text.split_names import Split
from ui.cli.completion import names_of
from ui.cli.job_progress import submit
from ui.cli.listing import Column, created_column, name_column
from ui.cli.options import Json, RunOptions, takes
from ui.cli.output import day, print_fields, print_json, print_table, say
from ui.cli.things import add_delete, add_list, get_card
from ui.present.text.formatting import size
from workbench.kinds.data import ImportCorpus

app = typer.Typer(no_args_is_help=True, help=__doc__)

CorpusName = Annotated[str, typer.Argument(help="Name of a corpus.", autocompletion=names_of("corpus"))]
DomainName = Annotated[str, typer.Argument(help="Name of a domain.", autocompletion=names_of("domain"))]

_SEED_HELP = "Show conversations as this seed model reads them, and which tokens count in the loss."
_COLUMNS = (
    name_column(),
    Column("Domains", lambda corpus: corpus.domains),
    Column("Skipped", lambda corpus: corpus.report.num_left_out),
    Column("Licence", lambda corpus: corpus.licence),
    created_column(day),
)
_DOMAIN_COLUMNS = (
    name_column(),
    Column("Corpus", lambda domain: domain.corpus),
    Column("Role", lambda domain: domain.role),
    Column("Format", lambda domain: domain.format),
    Column("Documents", lambda domain: domain.num_documents),
    Column("Words", lambda domain: domain.num_words),
    Column("Size", lambda domain: domain.num_bytes, size),
    created_column(day),
)


@app.command("add")
@takes(ImportCorpus, "name", "path")
def add(spec: ImportCorpus, run_options: RunOptions) -> None:
    """Import text from files, a Hugging Face data set or this machine, as domains."""
    submit(spec, run_options)


add_list(
    app,
    "corpus",
    _COLUMNS,
    noun="corpus",
    help="List corpora with their domains.",
    empty="There is no corpus yet. Import one with: workbench corpus add NAME PATH",
)


add_list(
    app,
    "domain",
    _DOMAIN_COLUMNS,
    noun="domain",
    help="List domains with their sizes in documents, words and bytes.",
    empty="There is no domain yet. Import text with: workbench corpus add NAME PATH",
    verb="domains",
)


@app.command("show")
def show(
    name: DomainName,
    documents: int = typer.Option(3, min=0, max=MOST, help="Documents to preview."),
    split: Annotated[Split, typer.Option(help="Split to preview.")] = "train",
    seed_model: Annotated[str, typer.Option(help=_SEED_HELP, autocompletion=names_of("seed model"))] = "",
    as_json: Json = False,
) -> None:
    """Show a domain: its sizes, source, licence and first documents; of conversations also what counts in the loss."""
    from ui.present.forms.job_forecast import row_text, row_words
    from ui.present.forms.uploads import own_names
    from ui.present.splits import split_words  # here, because it needs Arrow
    from workbench.registry import corpora
    from workbench.registry.database import reading
    from workbench.settings import get_settings
    from workbench.store.storage import get_storage

    settings = get_settings()
    with reading() as session:
        card = corpora.get_domain(session, name)
        storage = get_storage(settings)
        preview = corpora.preview_documents(session, storage, name, split, documents, 0)
        marked = corpora.preview_marked(session, storage, name, seed_model, split, documents) if seed_model else []
    if as_json:
        print_json({"domain": card, "documents": list(preview)} | ({"marked": marked} if seed_model else {}))
        return
    own = partial(own_names, source=card.source, home=settings.root)  # uploaded files as their owner called them
    imported = {"source": own(card.source), "imported": day(card.created_at)}
    print_fields(card.model_dump(exclude={"id", "created_at"}) | imported)
    say(split_words(card))
    for number, row in enumerate(marked, 1):
        say(f"\n{row_words(row, number)}\n{row_text(row)}")
    for document in () if marked else preview:
        say(f"\n— {own(document.source or 'no source stated')}\n{document.text[:400]}")


@app.command("report")
def report(name: CorpusName, as_json: Json = False) -> None:
    """Show an import: what was read, what was skipped, where and why."""
    from ui.present.next_step_text import with_options

    card = get_card("corpus", name)
    if as_json:
        print_json(card)
        return
    print_fields(card.report.model_dump(exclude={"refused", "reasons", "file_reasons", "fields_not_read", "notes"}))
    for sentence in card.report.sentences():
        say(sentence)
    rows = [(one.path, one.line, with_options(one.reason)) for one in card.report.refused]
    if rows or card.report.is_complete:
        print_table(["File", "Line", "Reason"], rows, empty="Nothing was skipped.")


add_delete(
    app,
    "corpus",
    CorpusName,
    "Delete a corpus with its domains and the scores on them; refused while an expert or a job depends on them.",
)
