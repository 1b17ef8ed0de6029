"""Tasks: make folders of labelled examples for few-shot classification."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ui.cli.options import Json, split_commas
from ui.cli.output import print_json, say
from ui.errors import BadUsageError
from workbench.analysis.sample_texts import Label

app = typer.Typer(no_args_is_help=True, help=__doc__)

Folder = Annotated[Path, typer.Argument(help="Folder of tasks; each gets a folder of its own in it.")]
Most = Annotated[int, typer.Option(min=8, max=100_000, help="Examples at most.")]


@app.command("make")
def make(
    folder: Folder,
    name: Annotated[str, typer.Option(help="Name of the task.")],
    domains: Annotated[list[str], typer.Option(help="Domains, with commas between.")],
    by: Annotated[Label, typer.Option(help="The label of a text: its domain, or the source of its record.")] = "domain",
    most: Most = 500,
    characters: Annotated[int, typer.Option(min=20, max=100_000, help="Longest text; longer ones are cut.")] = 300,
    as_json: Json = False,
) -> None:
    """Make a task of held-out text of your domains, which no model was trained on; as many examples of each label."""
    from engine.analysis.fewshot.make_tasks import make_task
    from workbench.analysis.sample_texts import labelled_text
    from workbench.registry.database import reading
    from workbench.store.storage import get_storage

    place = _place(folder, name)
    with reading() as session:
        pairs = labelled_text(session, get_storage(), split_commas(domains), by)
    counts = make_task(pairs, place, most=most, characters=characters)
    if as_json:
        print_json({"task": name, "folder": str(place), "labels": counts})
        return
    say(f"{place}: {sum(counts.values())} examples, as many of each label: {', '.join(counts)}.")


@app.command("download")
def download(
    folder: Folder,
    names: Annotated[
        list[str] | None, typer.Option(help="Of agnews, dbpedia, sst2, amazon, phrasebank, twitter; all by default.")
    ] = None,
    most: Most = 1000,
    as_json: Json = False,
) -> None:
    """Download the six public tasks of C-BTM (A.7) from the Hugging Face hub, and record the commits that were read."""
    from engine.analysis.fewshot.make_tasks import PUBLIC_TASKS, download_task

    sources = {
        name: download_task(name, _place(folder, name), most=most).name
        for name in split_commas(names or []) or list(PUBLIC_TASKS)
    }
    if as_json:
        print_json({"folder": str(folder), "tasks": sources})
        return
    for name, source in sources.items():
        say(f"{folder / name}: {source}")


def _place(folder: Path, name: str) -> Path:
    """The folder of a task; raises BadUsageError for a name that is no name of a folder, or is taken."""
    if not name or name in (".", "..") or Path(name).name != name or not name.isprintable():
        raise BadUsageError(f"“{name}” cannot be the name of a folder.", "Choose another name for the task.")
    if (folder / name).exists():
        raise BadUsageError(f"{folder / name} exists already.", "Choose another name, or remove it.")
    return folder / name
