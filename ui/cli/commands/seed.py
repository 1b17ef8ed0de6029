"""workbench seed: the models that experts start from."""

from __future__ import annotations

import typer

from ui.cli.job_progress import submit
from ui.cli.options import Here, How, Json, Wait, build, takes
from ui.cli.output import day, print_done, print_fields, print_json, print_table
from ui.errors import BadUsage
from ui.present.text.formatting import size
from workbench.kinds.training.make_seed import MakeSeed

app = typer.Typer(no_args_is_help=True, help="Seed models: make a fresh one, or take one that exists.")


@app.command("make")
@takes(MakeSeed, "name", source="fresh", location="", expert=None)
def make(spec: MakeSeed, how: How) -> None:
    """Begin a fresh small model, with a tokenizer trained on your own domains."""
    submit(spec, how)


@app.command("add")
def add(
    name: str = typer.Argument(help=MakeSeed.model_fields["name"].description),
    folder: str = typer.Argument("", show_default=False, help="Folder of a causal language model and its tokenizer."),
    hub: str = typer.Option("", help="Name of a model on the Hugging Face hub; downloads it."),
    expert: str = typer.Option("", help=MakeSeed.model_fields["expert"].description),
    here: Here = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Take a model from a folder, from the Hugging Face hub, or the whole model of an expert that is trained."""
    sources = (
        {"source": "folder", "location": folder},
        {"source": "hub", "location": hub},
        {"source": "expert", "expert": expert},
    )
    given = [source for source, place in zip(sources, (folder, hub, expert), strict=True) if place]
    if len(given) != 1:
        raise BadUsage(
            "A seed must come from a FOLDER, from --hub or from --expert, but none or several are given instead."
        )
    submit(build(MakeSeed, {"name": name, **given[0]}), How(here, wait, as_json))


@app.command("list")
def list_all(as_json: Json = False) -> None:
    """Every seed model."""
    from workbench.registry.database import reading
    from workbench.registry.seeds import list_seeds

    with reading() as session:
        cards = list_seeds(session)
    if as_json:
        print_json(cards)
    else:
        rows = [
            (one.name, one.family, one.num_parameters, size(one.size_bytes), one.source, day(one.created_at))
            for one in cards
        ]
        print_table(
            ["Seed", "Family", "Parameters", "Size", "From", "Made"],
            rows,
            empty="There is no seed model yet. Make one with: workbench seed make NAME --domains A,B",
        )


@app.command("show")
def show(name: str = typer.Argument(help="Name of a seed model."), as_json: Json = False) -> None:
    """One seed model: its shape, its tokenizer, where it came from."""
    from workbench.registry.database import reading
    from workbench.registry.seeds import get_seed

    with reading() as session:
        card = get_seed(session, name)
    if as_json:
        print_json(card)
    else:
        told = {"size": size(card.size_bytes), "made": day(card.created_at)}
        print_fields(card.model_dump(exclude={"id", "size_bytes", "created_at"}) | told)


@app.command("delete")
def delete(name: str = typer.Argument(help="Name of a seed model."), as_json: Json = False) -> None:
    """Delete a seed model; refused while an expert depends on it."""
    from workbench.registry.database import transaction
    from workbench.registry.seeds import delete_seed

    with transaction() as session:
        delete_seed(session, name)
    print_done({"deleted": name}, f"“{name}” is deleted.", as_json)
