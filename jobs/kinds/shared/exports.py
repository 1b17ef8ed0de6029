"""Exports: what folders for other tools hold, and how outputs outside the store are written.

An output is complete or absent, and never replaces what is there. A job that is killed between the last byte and its
row finds what it wrote when it starts again: the hash is noted in its folder just before the output gets its name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.events import Event, Progress
from engine.files import MANIFEST, ArtifactRef, aside_of, faults_in, new_file, new_folder, sha256_of
from engine.methods.base import Method
from engine.methods.export import export_model, save_model
from engine.methods.registry import method_of
from engine.text.chat.own_template import add_turn_ends, copy_template, template_folder
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Work
from jobs.kinds.shared.gguf import convert, find_converter
from jobs.kinds.shared.resume_guard import read_inputs, write_inputs
from workbench.errors import DiskFull, StorageError
from workbench.exports.facts import expert_facts
from workbench.exports.model_card import CardFacts, Format, model_card
from workbench.registry.experts import expert_row
from workbench.specs.hub_names import hub_origin
from workbench.specs.outputs import What, existing
from workbench.store.storage import free_bytes, is_full_disk

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


_NOTE = "output"


def is_written(work: Work, target: Path, what: What) -> bool:
    """Whether an earlier attempt of this job wrote the target; raises StorageError where anything else is there."""
    if not os.path.lexists(target):
        return False
    sha256 = read_inputs(work, _NOTE)
    if sha256 is None or not (_is_file(target, sha256) if what == "file" else _is_folder(target, sha256)):
        raise existing(target, what)
    aside_of(target, work.job_id).unlink(missing_ok=True)  # of a file that was killed between its two names
    return True


def _is_file(target: Path, sha256: str) -> bool:
    return target.is_file() and sha256_of(target) == sha256


def _is_folder(target: Path, sha256: str) -> bool:
    return not any(faults_in(target, sha256))


@contextmanager
def output_folder(work: Work, target: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name and a manifest of hashes at the end.

    What a killed attempt of this job left is removed. Raises StorageError for a target that exists, also one that
    appeared meanwhile, and DiskFull.
    """

    def note(folder: Path) -> None:
        write_inputs(work, _NOTE, sha256_of(folder / MANIFEST))

    with _refusals(target, "folder"), new_folder(target, replace=False, mark=work.job_id, complete=note) as folder:
        yield folder


@contextmanager
def output_file(work: Work, target: Path) -> Iterator[Path]:
    """The path of a file to write, which gets its name at the end. Like `output_folder` otherwise."""
    with _refusals(target, "file"), new_file(target, replace=False, mark=work.job_id) as file:
        yield file
        write_inputs(work, _NOTE, sha256_of(file))


def output_bytes(target: Path) -> int:
    """Bytes of an output, without its manifest."""
    files = [target] if target.is_file() else target.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file() and file.name != MANIFEST)


@contextmanager
def _refusals(target: Path, what: What) -> Iterator[None]:
    """Turns the errors of writing a target into one sentence each."""
    try:
        yield
    except FileExistsError as error:
        raise existing(target, what) from error
    except PermissionError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}.", "Choose a folder of yours.") from error
    except Exception as error:
        if not is_full_disk(error, target.parent):
            raise
        raise DiskFull(
            f"The disk of {target.parent} is full: {free_bytes(target.parent):,} bytes are free. Nothing was exported.",
            "Free some space, then resume the job.",
        ) from error
