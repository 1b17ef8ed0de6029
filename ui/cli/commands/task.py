"""Tasks: make folders of labelled examples for few-shot classification."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ui.cli.options import split_commas
from ui.cli.verbs import CommandGroup, Outcome, read
from ui.errors import BadUsageError
from workbench.analysis.sample_texts import Label, read_labelled_text
from workbench.store.storage import get_storage

app = CommandGroup(__doc__)

Folder = Annotated[Path, typer.Argument(help="Folder of tasks; each gets a folder of its own in it.")]
Most = Annotated[int, typer.Option(min=8, max=100_000, help="Examples at most.")]


@app.verb()
def make(
    folder: Folder,
    name: Annotated[str, typer.Option(help="Name of the task.")],
    domains: Annotated[list[str], typer.Option(help="Domains, with commas between.")],
    by: Annotated[Label, typer.Option(help="The label of a text: its domain, or the source of its record.")] = "domain",
    most: Most = 500,
    characters: Annotated[int, typer.Option(min=20, max=100_000, help="Longest text; longer ones are cut.")] = 300,
) -> Outcome:
    """Make a task of held-out text of your domains, which no model was trained on; as many examples of each label."""
    from engine.analysis.fewshot.make_tasks import make_task

    path = _task_folder(folder, name)
    pairs = read(read_labelled_text, get_storage(), split_commas(domains), by)
    counts = make_task(pairs, path, most=most, characters=characters)
    sentence = f"{path}: {sum(counts.values())} examples, as many of each label: {', '.join(counts)}."
    return Outcome({"task": name, "folder": str(path), "labels": counts}, sentence)


@app.verb()
def download(
    folder: Folder,
    names: Annotated[
        list[str] | None, typer.Option(help="Of agnews, dbpedia, sst2, amazon, phrasebank, twitter; all by default.")
    ] = None,
    most: Most = 1000,
) -> Outcome:
    """Download the six public tasks of C-BTM (A.7) from the Hugging Face hub, and record the commits that were read."""
    from engine.analysis.fewshot.make_tasks import PUBLIC_TASKS, download_task

    sources = {
        name: download_task(name, _task_folder(folder, name), most=most).name
        for name in split_commas(names or []) or list(PUBLIC_TASKS)
    }
    sentences = "\n".join(f"{folder / name}: {source}" for name, source in sources.items())
    return Outcome({"folder": str(folder), "tasks": sources}, sentences)


def _task_folder(folder: Path, name: str) -> Path:
    """The folder of a task. Raises BadUsageError for a name that cannot be that of a folder, or that is taken."""
    if not name or name in (".", "..") or Path(name).name != name or not name.isprintable():
        raise BadUsageError(f"“{name}” cannot be the name of a folder.", "Choose another name for the task.")
    if (folder / name).exists():
        raise BadUsageError(f"{folder / name} exists already.", "Choose another name, or remove it.")
    return folder / name
