"""Which regular expressions of foreign files take time in proportion to a text, whatever the text is.

The regex library of `tokenizers` backtracks: `(z+)+$` takes minutes for some texts, and no call of it can be ended. So
only the forms that tokenizers are made of are taken. A pattern is a list of branches. In each, what repeats without end
is one character or class and never a group, at most twice, and nothing that may be missing comes after it. The one
exception is what the next branch reads in one go where this one fails, as in `\\s*[\\r\\n]+|\\s+`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    return len(branches) > 1 and _reads_on(items[: first + 1], branches[1]) and _is_safe(branches[1:])


def _reads_on(before: Sequence[_Item], branch: Sequence[_Item]) -> bool:
    """Whether a branch begins as the one before it, so that it reads at once what that has read before it failed."""
    start = branch[: len(before)]
    is_same = [item.text for item in start] == [item.text for item in before]
    return is_same and start[:-1] == before[:-1] and start[-1].is_endless


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
