"""Reads files of untrusted folders: only inside the folder, up to a size, as plain data.

And says which of their regular expressions take time in proportion to a text, whatever the text is. The regex library
of `tokenizers` backtracks: `(z+)+$` takes minutes for some texts, and no call of it can be ended. So only the forms
that tokenizers are made of are taken. A pattern is a list of branches. In each, what repeats without end is one
character or class and never a group, at most twice, and nothing that may be missing comes after it. The one exception
is what the next branch reads in one go where this one fails, as in `\\s*[\\r\\n]+|\\s+`.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.errors import EngineError, ModelError

_LFS = re.compile(rb"version https://(?:git-lfs|hawser)\.github\.com/spec/v\d+\n(?:.*\n)*?size (\d+)", re.ASCII)
_ANNEX = re.compile(rb"(?:\.\./)*(?:\.git)?/annex/objects/")
HEAD_BYTES = 4096  # of a file, which show what it is
_REMEDY = "Get the folder again from where it was published."


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
    if pointer := describe_pointer(content[:HEAD_BYTES], folder / name):
        raise error(*pointer)
    if len(content) > max_bytes:
        raise error(f"{folder / name} is larger than {max_bytes >> 20} MB, the most that is read of it.", _REMEDY)
    return content


def describe_pointer(head: bytes, subject: object) -> tuple[str, str] | None:
    """What is wrong with a file that is a pointer of Git LFS or git-annex, and what to do; None for other files."""
    if match := _LFS.match(head):
        size = describe_size(int(match[1]))
        problem = f"{subject} is a Git LFS pointer: the file ({size}) was not downloaded."
        return problem, "Run `git lfs pull` in its folder, or download the file itself."
    if _ANNEX.match(head):
        problem = f"{subject} is a git-annex pointer: the file was not downloaded."
        return problem, "Run `git annex get` in its folder, or download the file itself."
    return None


def describe_size(num_bytes: int) -> str:
    """A size in the unit that suits it, as hubs and file managers show it."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if num_bytes >= 1000**power:
            return f"{num_bytes / 1000**power:.{0 if num_bytes >= 10 * 1000**power else 1}f} {unit}"
    return f"{num_bytes} bytes"


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
        value = json.loads(text, object_pairs_hook=without_repeats)
    except RecursionError:
        raise error(f"{folder / name} is nested too deeply.", _REMEDY) from None
    except ValueError as cause:
        raise error(f"{folder / name} is not valid JSON: {short(cause)}.", _REMEDY) from None
    if not isinstance(value, dict):
        raise error(f"{folder / name} is not a JSON object.", _REMEDY)
    return value


class RepeatedKeyError(ValueError):
    """A JSON object that names a key twice."""


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object (for `object_pairs_hook`); raises RepeatedKeyError."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RepeatedKeyError(f"it has the key “{short(twice)[:40]}” twice")
    return values


def short(value: object) -> str:
    """Untrusted text for a message: on one line, printable and not too long."""
    text = " ".join(str(value).split())
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


_LONGEST = 200


MAX_LENGTH = 4096  # characters of a pattern
MAX_BRANCHES = 128
_MAX_CHOICES = 64  # of counts for what a branch repeats a bounded number of times
_MOST_TIMES = 16  # of what is repeated a known number of times
_GROUP = re.compile(r"\((?!\?)|\(\?:|\(\?i:")
_ESCAPE = re.compile(r"\\(?:[pP]\{\^?\w+\}|x\{[0-9a-fA-F]+\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[sSdDwWrntvfhH]|[^\w\s])")
_TIMES = re.compile(r"[?*+]|\{(?P<least>\d{1,3})(?:(?P<range>,)(?P<most>\d{0,3}))?\}")
_BEFORE_SPACE = r"(?!\S)"


class _UnknownPatternError(Exception):
    """A form that no rule here knows."""


@dataclass(frozen=True)
class _Item:
    """A piece of a branch: what it matches, and how often. If `is_endless`, as often as it can."""

    text: str
    least: int = 1
    num_counts: int = 1
    is_endless: bool = False


def is_linear(pattern: str) -> bool:
    """Whether a pattern is of a form that no text makes slow."""
    try:
        branches = _branches(pattern)
    except _UnknownPatternError:
        return False
    return len(branches) <= MAX_BRANCHES and all(_is_safe(branches[i:]) for i in range(len(branches)))


def patterns_in(state: Any) -> Iterator[str]:
    """The regular expressions in the JSON of a tokenizer: of its normalizers, pre-tokenizers and decoders."""
    if isinstance(state, dict):
        for name, value in state.items():
            if name == "Regex" and isinstance(value, str):
                yield value
            else:
                yield from patterns_in(value)
    elif isinstance(state, list):
        for value in state:
            yield from patterns_in(value)


def _is_safe(branches: Sequence[Sequence[_Item]]) -> bool:
    """Whether the first branch either cannot fail late, or the ones after it read what it has read."""
    items = branches[0]
    if math.prod(item.num_counts for item in items) > _MAX_CHOICES:
        return False
    endless = [i for i, item in enumerate(items) if item.is_endless]
    if not endless:
        return True
    first, last = endless[0], endless[-1]
    if (
        last - first != len(endless) - 1
        or len(endless) > 2
        or (last > first and any(i.least for i in items[last + 1 :]))
    ):
        return False
    if not any(item.least for item in items[first + 1 :]):
        return True
    if [item.text for item in items] == [r"\s", _BEFORE_SPACE]:  # one step back, and it holds
        return True
    # the next branch begins as this one, so that it reads at once what this one has read before it failed
    before, start = items[: first + 1], branches[1][: first + 1] if len(branches) > 1 else []
    is_same = [item.text for item in start] == [item.text for item in before]
    return is_same and start[:-1] == before[:-1] and start[-1].is_endless and _is_safe(branches[1:])


def _branches(pattern: str) -> list[list[_Item]]:
    if len(pattern) > MAX_LENGTH:
        raise _UnknownPatternError
    branches, rest = _alternatives(pattern)
    if rest:
        raise _UnknownPatternError
    return branches


def _alternatives(text: str) -> tuple[list[list[_Item]], str]:
    """The branches at the start of a text, and what comes after them."""
    branches: list[list[_Item]] = [[]]
    while text and not text.startswith(")"):
        if text[0] == "|":
            branches.append([])
            text = text[1:]
            continue
        item, text = _item(text)
        branches[-1].append(item)
    if not all(branches):
        raise _UnknownPatternError
    return branches, text


def _item(text: str) -> tuple[_Item, str]:
    for mark in (_BEFORE_SPACE, "$"):
        if text.startswith(mark):
            return _Item(mark), text[len(mark) :]
    if start := _GROUP.match(text):
        inner, rest = _alternatives(text[start.end() :])
        if not rest.startswith(")") or any(item != _Item(item.text) for branch in inner for item in branch):
            raise _UnknownPatternError
        rest = rest[1:]
        item, after = _times(text[: len(text) - len(rest)], rest)
        if item.is_endless:
            raise _UnknownPatternError
        most = item.least + item.num_counts - 1
        return replace(item, num_counts=item.num_counts * len(inner) ** min(most, _MAX_CHOICES)), after
    atom = _atom(text)
    return _times(atom, text[len(atom) :])


def _atom(text: str) -> str:
    """One character, escape or class."""
    if text[0] == "\\":
        if escape := _ESCAPE.match(text):
            return escape[0]
        raise _UnknownPatternError
    if text[0] != "[":
        if text[0] in "()|*+?{^":
            raise _UnknownPatternError
        return text[0]
    depth = i = 0
    while i < len(text):
        if text[i] == "\\":
            if not (escape := _ESCAPE.match(text, i)):
                raise _UnknownPatternError
            i += len(escape[0])
            continue
        depth += (text[i] == "[") - (text[i] == "]")
        i += 1
        if not depth:
            return text[:i]
    raise _UnknownPatternError


def _times(atom: str, text: str) -> tuple[_Item, str]:
    """An item, as often as the start of a text says; giving nothing back (`++`) is quicker than giving back."""
    if not (times := _TIMES.match(text)):
        return _Item(atom), text
    least, is_range, most = times.group("least", "range", "most")
    low, high = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(times[0][0], (int(least or 0), None))
    if least is not None:
        high = int(most) if most else None if is_range else low
    if max(low, high or 0) > _MOST_TIMES or (high is not None and high < low):
        raise _UnknownPatternError
    rest = text[times.end() :].removeprefix("+")
    if rest[:1] in ("?", "*", "+", "{"):
        raise _UnknownPatternError
    return _Item(atom, low, 1 if high is None else high - low + 1, high is None), rest
