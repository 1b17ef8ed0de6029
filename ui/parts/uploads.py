"""Keeps uploaded files where an import can read them. A user's file name never becomes a path."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

_SUFFIX = re.compile(r"\.[a-z0-9]{1,10}")


class Uploaded(Protocol):
    """A file as the browser sent it."""

    @property
    def name(self) -> str: ...

    def getbuffer(self) -> memoryview: ...


def keep_uploads(files: Sequence[Uploaded], home: Path) -> Path:
    """A new folder with a random name that holds the files as `0001.txt`, `0002.jsonl.gz`, …"""
    folder = home / "uploads" / uuid.uuid4().hex
    folder.mkdir(parents=True)
    for number, file in enumerate(files, start=1):
        path = folder / f"{number:04d}{safe_suffix(file.name)}"
        with path.open("xb") as out:
            _copy(file, out)
    return folder


def _copy(file: Uploaded, out: IO[bytes]) -> None:
    out.write(file.getbuffer())


def safe_suffix(name: str) -> str:
    """The suffixes that say how to read a file (`.jsonl.gz`); it is the reader who refuses foreign kinds."""
    kept: list[str] = []
    for suffix in reversed(Path(name).suffixes[-2:]):
        if not _SUFFIX.fullmatch(suffix.lower()):
            break
        kept.insert(0, suffix.lower())
    return "".join(kept) or ".txt"
