"""Files and folders of a job outside the store: complete or absent, and never over what is there.

A job that is killed between the last byte and its row finds what it wrote when it starts again: the hash is noted in
its folder just before the output gets its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.files import MANIFEST, aside_of, faults_in, new_file, new_folder, sha256_of
from jobs.attempt.work import Work
from jobs.kinds.shared.resume_guard import read_inputs, write_inputs
from workbench.errors import DiskFullError, StorageError
from workbench.specs.base import Output, existing
from workbench.store.storage import free_bytes, is_full_disk

_NOTE = "output"


def is_written(work: Work, target: Path, what: Output) -> bool:
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

    Output a killed attempt of this job left is removed. Raises StorageError for a target that exists, also one that
    appeared meanwhile, and DiskFullError.
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
