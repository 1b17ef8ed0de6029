"""workbench corpus: bring in text and look at it."""

from __future__ import annotations

import typer

from engine.config import MOST
from ui.cli.job_progress import submit
from ui.cli.options import How, Json, takes
from ui.cli.output import day, harmless, print_done, print_fields, print_json, print_table, say
from ui.present.text.formatting import size
from workbench.kinds.data.import_corpus import ImportCorpus

app = typer.Typer(no_args_is_help=True, help="Bring in text, look at what came of it.")


@app.command("add")
@takes(ImportCorpus, "name", "path")
def add(spec: ImportCorpus, how: How) -> None:
    """Read text from files, a Hugging Face data set or this machine, and keep it as domains."""
    submit(spec, how)


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """Every corpus, and the domains it holds."""
    from workbench.registry.corpora import list_corpora
    from workbench.registry.database import reading

    with reading() as session:
        cards = list_corpora(session)
    if as_json:
        print_json(cards)
    else:
        rows = [
            (one.name, one.domains, one.report.get("num_refused", 0), one.licence, day(one.created_at)) for one in cards
        ]
        print_table(
            ["Corpus", "Domains", "Refused", "Licence", "Imported"],
            rows,
            empty="There is no corpus yet. Bring one in with: workbench corpus add NAME PATH",
        )


@app.command("domains")
def list_domains(as_json: Json = False) -> None:
    """Every domain, with its size in documents, words and bytes."""
    from workbench.registry import corpora
    from workbench.registry.database import reading

    with reading() as session:
        cards = corpora.list_domains(session)
    if as_json:
        print_json(cards)
    else:
        rows = [
            (one.name, one.corpus, one.role, one.num_documents, one.num_words, size(one.num_bytes)) for one in cards
        ]
        print_table(
            ["Domain", "Corpus", "Role", "Documents", "Words", "Size"],
            rows,
            empty="There is no domain yet. Bring in text with: workbench corpus add NAME PATH",
        )


@app.command("show")
def show(
    name: str = typer.Argument(help="Name of a domain."),
    documents: int = typer.Option(3, min=0, max=MOST, help="Documents to preview."),
    split: str = typer.Option("train", help="Which part to preview: train, dev or test."),
    as_json: Json = False,
) -> None:
    """One domain: sizes, provenance, licence and its first documents."""
    from workbench.registry import corpora
    from workbench.registry.database import reading
    from workbench.settings import get_settings
    from workbench.store.storage import get_storage

    with reading() as session:
        card = corpora.get_domain(session, name)
        preview = corpora.preview_documents(session, get_storage(get_settings()), name, split, documents, 0)
    if as_json:
        print_json({"domain": card, "documents": list(preview)})
        return
    print_fields(card.model_dump(exclude={"id", "created_at"}) | {"imported": day(card.created_at)})
    for document in preview:
        say(f"\n— {document['source']}\n{harmless(document['text'][:400])}")


@app.command("report")
def report(name: str = typer.Argument(help="Name of a corpus."), as_json: Json = False) -> None:
    """One import: what was taken, what was refused, where and why."""
    from workbench.registry.corpora import get_corpus
    from workbench.registry.database import reading

    with reading() as session:
        card = get_corpus(session, name)
    if as_json:
        print_json(card)
        return
    refused = card.report.get("refused", [])
    print_fields({key: value for key, value in card.report.items() if key != "refused"})
    rows = [(one.get("path"), one.get("line"), one.get("reason")) for one in refused]
    print_table(["File", "Line", "Why it was left out"], rows, empty="Nothing was left out.")


@app.command("delete")
def delete(name: str = typer.Argument(help="Name of a corpus."), as_json: Json = False) -> None:
    """Delete a corpus with its domains and the scores on them; refused while an expert or a job depends on them."""
    from workbench.registry.corpora import delete_corpus
    from workbench.registry.database import transaction

    with transaction() as session:
        delete_corpus(session, name)
    print_done({"deleted": name}, f"“{name}” is deleted.", as_json)
