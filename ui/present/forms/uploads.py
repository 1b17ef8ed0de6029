"""Stores uploaded files where an import can read them. A user's file name never becomes a path."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from engine.errors import CorpusError
from engine.text.formats import unknown_format
from engine.text.streams import TextFile, printable
from jobs.uploads import names_file, upload_id, uploads_folder
from ui.present.text.formatting import listed
from workbench.access.actor import Role, require

_SUFFIX = re.compile(r"\.[a-z0-9]{1,10}")


class Uploaded(Protocol):
    """A file as the browser sent it."""

    @property
    def name(self) -> str: ...

    def getbuffer(self) -> memoryview: ...


def require_text(files: Sequence[Uploaded]) -> None:
    """Raises CorpusError for the first file that is empty or of a kind that cannot be read."""
    for file in files:
        known = TextFile(Path(f"upload{safe_suffix(file.name)}"), printable(file.name), len(file.getbuffer()))
        if not known.size_bytes:
            raise CorpusError(f"“{known.name}” is empty.", "Choose a file with text.")
        if known.kind is None:
            raise unknown_format(known)


def keep_uploads(files: Sequence[Uploaded], home: Path) -> Path:
    """A new folder with a random name that holds the files as `0001.txt`, `0002.jsonl.gz`, …

    It is removed once it is an hour old and no unfinished job reads it.
    """
    require(Role.EDITOR)
    folder = uploads_folder(home) / uuid.uuid4().hex
    folder.mkdir(parents=True)
    for number, file in enumerate(files, start=1):
        with (folder / kept_name(number, file)).open("xb") as out:
            out.write(file.getbuffer())
    names = {kept_name(number, file): file.name for number, file in enumerate(files, start=1)}
    names_file(folder).write_text(json.dumps(names, ensure_ascii=False), encoding="utf-8")
    return folder


def own_names(text: str, source: str, home: Path) -> str:
    """A text about what was read from `source`: uploaded files appear under their original names."""
    folder = Path(source)
    if folder.name != upload_id(folder):
        return text
    names = _names_of(uploads_folder(home) / folder.name)
    if not names:
        return text
    renamed = {
        **{f"{source}/{kept}": name for kept, name in names.items()},
        source: listed([*names.values()]),
        **names,
    }
    # One pass, the longest first: a person may have called a file as we call another.
    pattern = "|".join(map(re.escape, sorted(renamed, key=len, reverse=True)))
    return re.sub(pattern, lambda match: renamed[match[0]], text)


def _names_of(folder: Path) -> dict[str, str]:
    try:
        names: dict[str, str] = json.loads(names_file(folder).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # of an earlier version, or cut by a full disk
        return {}
    return names


def kept_name(number: int, file: Uploaded) -> str:
    """The name under which the file is stored."""
    return f"{number:04d}{safe_suffix(file.name)}"


def safe_suffix(name: str) -> str:
    """The suffixes that say how to read a file (`.jsonl.gz`); the reader refuses unknown kinds."""
    kept: list[str] = []
    for suffix in reversed(Path(name).suffixes[-2:]):
        if not _SUFFIX.fullmatch(suffix.lower()):
            break
        kept.insert(0, suffix.lower())
    return "".join(kept) or ".txt"
