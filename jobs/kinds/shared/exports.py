"""What folders for other tools hold: an expert or a decoder in one of the formats, and its model card."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.events import Event, Progress
from engine.files import ArtifactRef
from engine.methods.base import Method
from engine.methods.export import export_model, save_model
from engine.methods.registry import method_of
from engine.text.chat.own_template import add_turn_ends, copy_template, template_folder
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Work
from jobs.kinds.shared.gguf import convert, find_converter
from workbench.exports.facts import expert_facts
from workbench.exports.model_card import CardFacts, Format, model_card
from workbench.registry.experts import expert_row
from workbench.specs.base import hub_origin

CARD, GGUF = "README.md", "model.gguf"


@dataclass(frozen=True)
class ExportedExpert:
    """An expert to export: its base's files and its own, the commit of its seed on the hub if any, and its card."""

    method: Method
    base: ArtifactRef
    files: ArtifactRef
    commit: str
    card: CardFacts


def exported_expert(work: Work, name: str, format: Format) -> ExportedExpert:
    """The registry's record of an expert that is to be exported."""
    with work.reading() as session:
        row = expert_row(session, name)
        _, commit = hub_origin(row.seed.source if row.seed else "")
        return ExportedExpert(
            method_of(row.method),
            work.storage.kept(row.base),
            work.storage.kept(row.artifact),
            commit,
            CardFacts(name, format, (expert_facts(session, row),)),
        )


def write_expert(work: Work, one: ExportedExpert, folder: Path) -> Generator[Event, None, None]:
    """Fills a folder with an expert in the format of its card, and the card."""
    if one.card.format == "peft":
        seed = one.card.experts[0].base_model
        one.method.export_adapter(one.base, one.files, folder, base_model=seed, revision=one.commit)
        if template_folder(one.base.folder, one.files.folder) != one.base.folder:
            load_tokenizer(one.base.folder).save(folder)
            copy_template(one.files.folder, folder)
    elif one.card.format == "gguf":
        converter = find_converter(work.settings)
        with scratch(work, "model") as model:
            export_model(one.method, one.base, one.files, model)
            _finish_model(one.files.folder, model)
            yield from convert(converter, model, folder / GGUF)
    else:
        export_model(one.method, one.base, one.files, folder)
        _finish_model(one.files.folder, folder)
    write_card(one.card, folder)


def write_model(
    work: Work, lm: Any, tokenizer: Path, expert: Path, card: CardFacts, folder: Path
) -> Generator[Event, None, None]:
    """Fills a folder with a decoder in the format of its card, and the card.

    `tokenizer` is the folder of its tokenizer, `expert` that of an expert whose chat template it has.
    """
    if card.format == "gguf":
        with scratch(work, "model") as model:
            save_model(lm, tokenizer, model)
            _finish_model(expert, model)
            yield from convert(find_converter(work.settings), model, folder / GGUF)
    else:
        save_model(lm, tokenizer, folder)
        _finish_model(expert, folder)
    write_card(card, folder)


def _finish_model(expert: Path, folder: Path) -> None:
    """Gives an exported model its expert's chat template, and the ends of turns at which the workbench also stops."""
    copy_template(expert, folder)
    add_turn_ends(folder)


def write_card(card: CardFacts, folder: Path) -> None:
    """Writes the model card."""
    (folder / CARD).write_text(model_card(card), encoding="utf-8")


def writing() -> Progress:
    return Progress(0, 1, "folders", "writing")


def written() -> Progress:
    return Progress(1, 1, "folders", "done")


@contextmanager
def scratch(work: Work, name: str) -> Iterator[Path]:
    """A folder of the job for files on their way to somewhere else; it is removed then, also when that fails."""
    folder = work.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
