"""Reads files of untrusted folders: only inside the folder, up to a size, as plain data."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from engine.errors import EngineError, ModelError

_REMEDY = "Get the folder again from where it was published."


class _RepeatedKeyError(ValueError):
    """A JSON object that has a key twice."""


def confined(folder: Path, name: str, error: type[EngineError] = ModelError) -> Path | None:
    """The real path of a file directly in the folder; None where there is none.

    A link may lead to another file of the folder, and in a snapshot of the Hugging Face cache to its blobs,
    which is how that cache keeps its files. Raises `error` for a link that leads elsewhere, and for what is not a file.
    """
    path = folder / name
    if not os.path.lexists(path):
        return None
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(place) for place in _places(folder)):
        raise error(f"{path} is a link that leads out of its folder.", "Put the file itself there.")
    if not real.is_file():
        what = what_is(real)
        raise error(f"{path} is a {what}, not a file." if what else f"{path} is not a file.", _REMEDY)
    return real


def what_is(path: Path | str) -> str:
    """A named pipe, a socket or a device by its name; empty for files and folders, and for what cannot be seen.

    Asked before a path is opened: a named pipe is waited for without end, and a device may have none.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return ""
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "device"
    return "named pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else ""


def _places(folder: Path) -> list[Path]:
    real = Path(os.path.realpath(folder))
    return [real, real.parent.parent / "blobs"] if real.parent.name == "snapshots" else [real]


def read_bytes(folder: Path, name: str, max_bytes: int, error: type[EngineError] = ModelError) -> bytes | None:
    """The bytes of a file of the folder; None where there is none. Raises `error` when they are more than so many."""
    path = confined(folder, name, error)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as cause:
        raise error(f"{folder / name} cannot be read: {cause.strerror}.", "Check its permissions.") from None
    if len(content) > max_bytes:
        raise error(f"{folder / name} is larger than {max_bytes >> 20} MB, the most that is read of it.", _REMEDY)
    return content


def read_text(folder: Path, name: str, max_bytes: int, error: type[EngineError] = ModelError) -> str | None:
    """The text of a file of the folder; None where there is none. Raises `error` with what is wrong with it."""
    content = read_bytes(folder, name, max_bytes, error)
    try:
        return None if content is None else content.decode("utf-8")
    except UnicodeDecodeError:
        raise error(f"{folder / name} is not UTF-8 text.", _REMEDY) from None


def read_object(
    folder: Path, name: str, max_bytes: int, error: type[EngineError] = ModelError
) -> dict[str, Any] | None:
    """The JSON object in a file of the folder; None where there is none. Raises `error` with what is wrong with it."""
    text = read_text(folder, name, max_bytes, error)
    if text is None:
        return None
    try:
        value = json.loads(text, object_pairs_hook=_distinct)
    except _RepeatedKeyError as cause:
        raise error(f"{folder / name} has the key “{cause}” twice.", _REMEDY) from None
    except RecursionError:
        raise error(f"{folder / name} is nested too deeply.", _REMEDY) from None
    except ValueError as cause:
        raise error(f"{folder / name} is not valid JSON: {short(cause)}.", _REMEDY) from None
    if not isinstance(value, dict):
        raise error(f"{folder / name} is not a JSON object.", _REMEDY)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _RepeatedKeyError(short(key))
        values[key] = value
    return values


def short(value: object) -> str:
    """Untrusted text for a message: on one line, printable and not too long."""
    text = " ".join(str(value).split())
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


_LONGEST = 200
