"""Exports an expert to a folder, to the Hugging Face hub or into one packed file, and what such outputs hold.

An output is complete or absent, and never replaces what is there. A job that is killed between the last byte and its
row finds what it wrote when it starts again: the hash is noted in its folder just before the output gets its name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from engine.events import Progress
from engine.files import MANIFEST, ArtifactRef, aside_of, faults_in, new_file, new_folder, sha256_of
from engine.methods.base import Method
from engine.methods.export import export_model
from engine.methods.registry import method_of
from engine.packed_file import write_packed
from engine.text.chat.template import add_turn_ends, copy_template, template_folder
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.gguf import convert, find_converter
from jobs.kinds.shared.resume_guard import read_inputs, write_inputs
from workbench.errors import BadSpecError, DiskFullError, StorageError
from workbench.exports.facts import expert_facts
from workbench.exports.model_card import CardFacts, Format, model_card
from workbench.kinds.training.exchange import ExportExpert, PackExpert, PushExpert, push_complaints
from workbench.registry.experts import expert_row
from workbench.registry.packed_experts import describe_packed
from workbench.specs.base import Output, existing, hub_origin
from workbench.store.storage import free_bytes, is_full_disk

CARD, GGUF = "README.md", "model.gguf"
WRITING, WRITTEN = Progress(0, 1, "folders", "writing"), Progress(1, 1, "folders", "done")
_NOTE = "output"


def export(work: Work, spec: ExportExpert) -> JobRun:
    """Writes the folder and says what is in it."""
    target = Path(spec.folder)
    yield WRITING
    if not is_written(work, target, "folder"):
        expert = read_expert(work, spec.expert, spec.format)
        with output_folder(work, target) as folder:
            yield from write_expert(work, expert, folder)
    num_bytes = output_bytes(target)
    yield WRITTEN
    return {"expert": spec.expert, "folder": spec.folder, "format": spec.format, "num_bytes": num_bytes}


def push(work: Work, spec: PushExpert) -> JobRun:
    """Writes the export into the job's folder and uploads it; the token is read, and never stored."""
    token = _token()
    with work.reading() as session:
        if complaints := push_complaints(session, spec):
            raise BadSpecError(complaints)
    expert = read_expert(work, spec.expert, spec.format)
    yield WRITING
    with scratch(work, "upload") as folder:
        yield from write_expert(work, expert, folder)
        yield Progress(0, 1, "folders", f"uploading to {spec.repository}")
        url, commit = _upload(folder, spec, token)
    yield WRITTEN
    return {"expert": spec.expert, "url": url, "commit": commit, "format": spec.format}


def _upload(folder: Path, spec: PushExpert, token: str) -> tuple[str, str]:
    """The address of the repository and the new commit."""
    with _hub_errors(spec.repository):
        from huggingface_hub import HfApi

        hub = HfApi(token=token)
        repository = hub.create_repo(spec.repository, private=not spec.public, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=repository.repo_id, folder_path=folder, commit_message="Upload with Expert Workbench"
        )
        return str(repository), str(commit.oid)


def _token() -> str:
    """The token of HF_TOKEN or of a login; raises StorageError without one."""
    from huggingface_hub import get_token

    if token := get_token():
        return token
    raise StorageError(
        "Nothing can be uploaded to the Hugging Face hub without a token.",
        "Set HF_TOKEN where the job runs, or log in with: hf auth login",
    )


@contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Turns the errors of the hub and of the network into one sentence."""
    from huggingface_hub.errors import HfHubHTTPError

    unreachable: tuple[type[Exception], ...] = HfHubHTTPError.__bases__
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no status"
        raise StorageError(
            f"The Hugging Face hub refused the upload to “{repository}” ({status}): {_reason(error)}",
            "Check the repository's name, and that your token may write to it.",
        ) from error
    except unreachable as error:  # OSError, and the errors of the HTTP library of this version
        raise StorageError(
            f"The Hugging Face hub cannot be reached: {_reason(error)}", "Check the network, then retry the job."
        ) from error


def _reason(error: Exception) -> str:
    message = getattr(error, "server_message", None) or str(error)
    return next((line.strip() for line in str(message).splitlines() if line.strip()), type(error).__name__)[:300]


def pack(work: Work, spec: PackExpert) -> JobRun:
    """Writes the file, unless an earlier attempt did."""
    with work.reading() as session:
        row = expert_row(session, spec.expert)
        described = describe_packed(row)
        folders = {"expert": work.storage.kept(row.artifact)}
        is_on_seed = row.seed is not None and row.base_id == row.seed.artifact_id
        if not is_on_seed:
            folders["base"] = work.storage.kept(row.base)
        if spec.with_seed and row.seed is not None:
            folders["seed"] = work.storage.kept(row.seed.artifact)
    if spec.with_seed and described.seed is None:
        raise StorageError(f"“{spec.expert}” has no seed model here.", "Pack it without: its base is packed anyway.")
    yield Progress(0, 1, "files", "writing")
    target = Path(spec.file)
    if not is_written(work, target, "file"):
        about = described.model_dump(mode="json")
        with _refusals(target, "file"), new_file(target, replace=False, mark=work.job_id) as file:
            write_packed(file, about, {name: _checked_files(kept) for name, kept in folders.items()})
            write_inputs(work, _NOTE, sha256_of(file))
    num_bytes = output_bytes(target)
    yield Progress(1, 1, "files", "done")
    return {"expert": spec.expert, "file": spec.file, "with_seed": spec.with_seed, "num_bytes": num_bytes}


def _checked_files(kept: ArtifactRef) -> dict[str, Path]:
    """The files of an artifact by their names, every byte checked; its manifest follows from them."""
    replace(kept, record=None).check()  # what is given away is hashed
    files = (file for file in kept.folder.rglob("*") if file.is_file() and file.name != MANIFEST)
    return {file.relative_to(kept.folder).as_posix(): file for file in files}


@dataclass(frozen=True)
class ExportedExpert:
    """An expert to export: its base's files and its own, the commit of its seed on the hub if any, and its card."""

    method: Method
    base: ArtifactRef
    files: ArtifactRef
    commit: str
    card: CardFacts


def read_expert(work: Work, name: str, format: Format) -> ExportedExpert:
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


def write_expert(work: Work, expert: ExportedExpert, folder: Path) -> Events[None]:
    """Fills a folder with an expert in the format of its card, and the card."""
    if expert.card.format != "peft":
        save = partial(export_model, expert.method, expert.base, expert.files)
        yield from write_model(work, save, expert.files.folder, expert.card, folder)
        return
    seed = expert.card.experts[0].base_model
    expert.method.export_adapter(expert.base, expert.files, folder, base_model=seed, revision=expert.commit)
    if template_folder(expert.base.folder, expert.files.folder) != expert.base.folder:
        load_tokenizer(expert.base.folder).save(folder)
        copy_template(expert.files.folder, folder)
    write_card(expert.card, folder)


def write_model(
    work: Work, save: Callable[[Path], object], expert: Path, card: CardFacts, folder: Path
) -> Events[None]:
    """Fills a folder with a decoder in the format of its card, and the card.

    `save` writes the model with its tokenizer into a folder; `expert` is the folder of an expert whose chat template it
    has.
    """
    if card.format == "gguf":
        converter = find_converter(work.settings)
        with scratch(work, "model") as model:
            _save_model(save, expert, model)
            yield from convert(converter, model, folder / GGUF)
    else:
        _save_model(save, expert, folder)
    write_card(card, folder)


def _save_model(save: Callable[[Path], object], expert: Path, folder: Path) -> None:
    """Also writes an expert's chat template, and the ends of turns at which the workbench also stops."""
    save(folder)
    copy_template(expert, folder)
    add_turn_ends(folder)


def write_card(card: CardFacts, folder: Path) -> None:
    (folder / CARD).write_text(model_card(card), encoding="utf-8")


@contextmanager
def output_folder(work: Work, target: Path) -> Iterator[Path]:
    """A folder outside the store to fill, which gets its name and a manifest of hashes at the end.

    What a killed attempt left is removed. Raises StorageError for a target that exists, also one that appeared
    meanwhile, and DiskFullError.
    """

    def note(folder: Path) -> None:
        write_inputs(work, _NOTE, sha256_of(folder / MANIFEST))

    aside = new_folder(target, replace=False, mark=work.job_id, complete=note)
    with _refusals(target, "folder"), aside as folder:
        yield folder


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


def is_written(work: Work, target: Path, what: Output) -> bool:
    """Whether an earlier attempt of this job wrote the target; raises StorageError where anything else is there."""
    if not os.path.lexists(target):
        return False
    sha256 = read_inputs(work, _NOTE)
    is_same = sha256 is not None and (
        target.is_file() and sha256_of(target) == sha256 if what == "file" else not any(faults_in(target, sha256))
    )
    if not is_same:
        raise existing(target, what)
    aside_of(target, work.job_id).unlink(missing_ok=True)  # of a file that was killed between its two names
    return True


def output_bytes(target: Path) -> int:
    """Bytes of an output, without its manifest."""
    files = [target] if target.is_file() else target.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file() and file.name != MANIFEST)


@contextmanager
def _refusals(target: Path, what: Output) -> Iterator[None]:
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
        raise DiskFullError(
            f"The disk of {target.parent} is full: {free_bytes(target.parent):,} bytes are free. Nothing was exported.",
            "Free some space, then resume the job.",
        ) from error
