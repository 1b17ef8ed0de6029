"""Keeps uploaded files where an import can read them. A user's file name never becomes a path."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from jobs.sweep import uploads_folder

_SUFFIX = re.compile(r"\.[a-z0-9]{1,10}")


class Uploaded(Protocol):
    """A file as the browser sent it."""

    @property
    def name(self) -> str: ...

    def getbuffer(self) -> memoryview: ...


def keep_uploads(files: Sequence[Uploaded], home: Path) -> Path:
    """A new folder with a random name that holds the files as `0001.txt`, `0002.jsonl.gz`, …

    It is removed once it is an hour old and no unfinished import names it.
    """
    folder = uploads_folder(home) / uuid.uuid4().hex
    folder.mkdir(parents=True)
    for number, file in enumerate(files, start=1):
        with (folder / kept_name(number, file)).open("xb") as out:
            out.write(file.getbuffer())
    return folder


def kept_name(number: int, file: Uploaded) -> str:
    """What the file is called here, and in a report of what was refused."""
    return f"{number:04d}{safe_suffix(file.name)}"


def safe_suffix(name: str) -> str:
    """The suffixes that say how to read a file (`.jsonl.gz`); it is the reader who refuses foreign kinds."""
    kept: list[str] = []
    for suffix in reversed(Path(name).suffixes[-2:]):
        if not _SUFFIX.fullmatch(suffix.lower()):
            break
        kept.insert(0, suffix.lower())
    return "".join(kept) or ".txt"
