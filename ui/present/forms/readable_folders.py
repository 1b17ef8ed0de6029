"""The folders that pages and requests may read: those that the owner listed, and those of uploads.

A user's file name never becomes a path.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from engine.errors import CorpusError
from engine.text.formats import unknown_format
from engine.text.streams import TextFile, printable
from jobs.uploads import names_file, upload_id, uploads_folder
from ui.present.text.formatting import listed
from workbench.access.actor import Role, require
from workbench.errors import BadSpecError
from workbench.settings import Settings, get_settings


def require_readable(paths: Iterable[str | Path], settings: Settings | None = None) -> None:
    """Raises BadSpecError with every path that leads elsewhere, be it through a link."""
    settings = settings or get_settings()
    unreadable = [path for path in paths if not is_readable(Path(path), settings)]
    if unreadable:
        raise BadSpecError([_complaint(path, settings) for path in unreadable], _NEXT_STEP)


def _complaint(path: str | Path, settings: Settings) -> str:
    target = _place(Path(path))
    if target and _is_inside(target, settings):
        return f"{path} holds the workbench's home folder ({settings.root}), which no page or request may read."
    named = listed([str(folder) for folder in settings.readable_folders])
    return f"{path} is outside the folders that the studio may read (and the API): {named}."


_NEXT_STEP = "Upload the files, use the command line, or name their own folder in WORKBENCH_DATA_FOLDERS."


def is_readable(path: Path, settings: Settings) -> bool:
    """Whether a page may read what lies there. Of the home folder it may read uploads, and folders named inside it."""
    target = _place(path)
    return target is not None and _is_inside(target, settings) and not _holds_home(target, settings)


def _is_inside(target: Path, settings: Settings) -> bool:
    folders = [*settings.readable_folders, uploads_folder(settings.root)]
    if target.is_relative_to(settings.root):
        folders = [folder for folder in folders if settings.root in folder.parents]
    return any(target.is_relative_to(folder) for folder in folders)


def _place(path: Path) -> Path | None:
    """Where a path leads, without links; None where it is not a path, or its links go in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def _holds_home(target: Path, settings: Settings) -> bool:
    """Whether reading a full folder would reach the home folder inside it; hidden folders are skipped."""
    if target not in settings.root.parents:
        return False
    return not any(name.startswith(".") for name in settings.root.relative_to(target).parts)


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
        with (folder / stored_name(number, file)).open("xb") as out:
            out.write(file.getbuffer())
    names = {stored_name(number, file): file.name for number, file in enumerate(files, start=1)}
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


def stored_name(number: int, file: Uploaded) -> str:
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
