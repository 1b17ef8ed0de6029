"""The fields of conversations: those that are read, those that say nothing of the words, and all others.

A field of the third list is refused where it has a value: what a record says is never dropped in silence. Read, as
LLaMA-Factory, axolotl, TRL and OpenAI write them: a system prompt in a field of its own, earlier turns (`history`),
values for the template (`chat_template_kwargs`), and marks of what to learn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from engine.errors import CorpusError, NextStep
from engine.foreign_files import short
from engine.text.chat.template_values import is_variable

SYSTEM: Final = ("system", "system_prompt")
HISTORY: Final = "history"
TOOLS: Final = ("tools", "functions")
TEMPLATE_KWARGS: Final = "chat_template_kwargs"
MARKS: Final = ("weight", "train", "training", "trainable", "learn", "loss")  # 1 or true: an answer to learn
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\s.:-]+")
_SAYS_NOTHING: Final = re.compile(  # of the words of a conversation; after any other word, as in `prompt_id`
    r"(.*_)?(id|ids|uuid|guid|hash|hashes|md5|sha1|sha256|checksum|index|idx|row|identifier|hashed_ip|"
    r"source|sources|origin|dataset|subset|split|category|categories|tasks?|task_(name|type)|topics?|domains?|"
    r"tags?|keywords|languages?|lang|locale|country|urls?|links?|licen[cs]e|authors?|contributor|title|type|"
    r"scores?|ratings?|quality|difficulty|rewards?|ranks?|perplexity|ppl|"
    r"similarity|confidence|toxic|toxicity|detoxify|moderation|nsfw|redacted|flagged|"
    r"date|datetime|time|timestamp|(created|updated|modified)(_at)?|"
    r"model|model_name|generator|version|commit|metadata|meta)"
    r"|subject|state|revision|header|_*index_level_\d+_*|unnamed_\d+"  # these say more as in `dialogue_state`
)
_COUNTED: Final = r"(token|word|char|character|turn|message)"
_COUNTS_SOMETHING: Final = re.compile(  # the same of a number: a text of such a name, as in `system_message`, is words
    rf"(.*_)?(counts?|len|length|votes|upvotes|downvotes|likes|views|{_COUNTED}s?)|num_?{_COUNTED}s?|num|(num|n)_\w+s"
)


def is_blank(value: object) -> bool:
    """Whether a value says nothing: null, no text, an empty list or object, or one of such values; also as JSON."""
    if isinstance(value, str):
        return value.strip() in ("", "[]", "{}", "null")
    if isinstance(value, Mapping):
        return all(map(is_blank, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_blank, value))
    return value is None


def learns(values: Mapping[str, Any], what: str) -> bool | None:
    """Whether the marks of a message or record say that it is learned from; None without a mark."""
    marks = {name: values[name] for name in MARKS if not is_blank(values.get(name))}
    for name, value in marks.items():
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise CorpusError(
                f"{what} has “{name}”: {short(value)}; an answer counts in full (1, true) or not at all (0, false).",
                NextStep.LEAVE_FIELDS_OUT,
            )
    if len({bool(value) for value in marks.values()}) > 1:
        raise CorpusError(f"{what} has marks that differ: {_quoted(marks)}.", "Fix or remove the record.")
    return bool(next(iter(marks.values()))) if marks else None


def without(values: Mapping[str, Any], ignored: Collection[str], not_read: list[str]) -> Mapping[str, Any]:
    """The other fields; the names of those that are left out and have a value are appended to `not_read`."""
    not_read += [name for name in ignored if not is_blank(values.get(name))]
    return {name: value for name, value in values.items() if name not in ignored} if ignored else values


def not_needed(values: Mapping[str, Any], read: Collection[str], texts: Collection[str], what: str) -> list[str]:
    """The names of the fields with a value that are not read, because they say nothing of the words.

    `texts` are the conversation's own: a field that repeats one is not among them. Raises CorpusError for any other.
    """
    names = [name for name in values if name not in read and not is_blank(values[name])]
    names = [name for name in names if not (isinstance(values[name], str) and values[name].strip() in texts)]
    if others := [name for name in names if not _says_nothing(name, values[name])]:
        also = f" (also {_quoted(others[1:])})" if others[1:] else ""
        raise CorpusError(
            f"{what} has “{short(others[0])}”, which is not read: {short(values[others[0]])[:60]}{also}.",
            NextStep.LEAVE_FIELDS_OUT,
        )
    return names


def template_kwargs_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values for the template of a record, such as `enable_thinking`; null ones are left out."""
    given = values.get(TEMPLATE_KWARGS)
    if is_blank(given):
        return {}
    given = parsed(given)
    if not isinstance(given, Mapping):
        raise CorpusError(
            f"“{TEMPLATE_KWARGS}” must be an object of values for the chat template, got {type(given).__name__}.",
            "Fix or remove the record.",
        )
    kwargs = {name: value for name, value in given.items() if value is not None}
    for name in kwargs:
        if not is_variable(str(name)):
            raise CorpusError(
                f"“{TEMPLATE_KWARGS}” sets “{short(name)}”, which a record may not.", "Fix or remove the record."
            )
    return kwargs


def parsed(value: object) -> object:
    """A list or object that a table holds as JSON; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def pairs_of(history: object) -> Iterator[tuple[str, str]]:
    """The earlier turns of a record as pairs of role and text."""
    turns = parsed(history)
    for turn in turns if isinstance(turns, Iterable) and not isinstance(turns, str) else [turns]:
        if not (isinstance(turn, list | tuple) and len(turn) == 2 and all(isinstance(text, str) for text in turn)):
            raise CorpusError(
                f"“{HISTORY}” must be a list of pairs, each of a question and its answer.", "Fix or remove the record."
            )
        yield "user", turn[0]
        yield "assistant", turn[1]


def _says_nothing(name: str, value: object) -> bool:
    words = _WORDS.sub("_", name).lower()
    return bool(_SAYS_NOTHING.fullmatch(words) or (_COUNTS_SOMETHING.fullmatch(words) and _is_number(value)))


def _is_number(value: object) -> bool:
    """Whether it is a number, also as text, or some in a list or object."""
    if isinstance(value, Mapping | list | tuple):
        return all(map(_is_number, value.values() if isinstance(value, Mapping) else value))
    if isinstance(value, str):
        with suppress(ValueError):
            return isinstance(float(value), float)
    return value is None or isinstance(value, int | float)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"“{short(name)}”" for name in names)
