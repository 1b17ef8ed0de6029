"""Conversations in the shapes that data sets have, as messages of a role and its content.

A record has one of these shapes, named as TRL and the hub's data sets name them:
`messages` (OpenAI: role and content), `conversations` (ShareGPT: from and value), `prompt` and `completion` (two texts,
or two lists of messages), `instruction`, `input` and `output` (Alpaca). All records of a file have the same shape.
What a template cannot show of every model is refused: calls of tools, their answers, and parts that are not text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.errors import CorpusError, NextStep
from engine.foreign_files import short
from engine.text.chat.record_fields import (
    HISTORY,
    MARKS,
    SYSTEM,
    TEMPLATE_KWARGS,
    TOOLS,
    is_blank,
    learns,
    not_needed,
    pairs_of,
    parsed,
    template_kwargs_of,
    without,
)
from engine.text.valid_text import valid_text

Message = dict[str, Any]  # role, content, and `counts`: False on an answer that is not learned

SHAPES: Final = (("messages",), ("conversations",), ("prompt", "completion"), ("instruction", "output"))
COUNTS: Final = "counts"
ROLES: Final = ("system", "user", "assistant")
_ROLES: Final = {
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bing", "bard", "bot"), "assistant"),
}
_OF_TOOLS: Final = ("tool", "tool_call", "tool_response", "function", "function_call", "observation")
_CALLS: Final = ("tool_calls", "function_call")
_OF_MESSAGE: Final = ("role", "from", "content", "value", *_CALLS, *MARKS)
_EXAMPLE: Final = 'Write {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}.'
_REMOVE: Final = "Remove the record."


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a record, the values that it gives to the template, and its fields that were not read."""

    messages: list[Message]
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    not_read: list[str] = field(default_factory=list)


def shape_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of the shape that a record has; raises CorpusError when it has none."""
    for shape in SHAPES:
        if all(values.get(name) is not None for name in shape):
            return shape
    raise CorpusError(f"The record is no conversation: it has none of {shape_names()}.", _EXAMPLE)


def shape_names() -> str:
    """The fields of every shape, for a sentence."""
    return ", ".join(" with ".join(f"“{name}”" for name in shape) for shape in SHAPES)


def conversation_of(
    values: Mapping[str, Any], shape: Sequence[str], others: Collection[str] = (), ignored: Collection[str] = ()
) -> Conversation:
    """The conversation of a record of a shape; raises CorpusError when it is none with an answer to learn.

    `others` are fields that somebody else reads (the domain's), `ignored` those that are left out on purpose.
    """
    not_read: list[str] = []
    values = without(values, ignored, not_read)
    if any(not is_blank(parsed(values.get(name))) for name in TOOLS):
        raise CorpusError("The conversation offers tools to the model, which is not supported.", _REMOVE)
    if learns(values, "The record") is False:
        raise CorpusError("The record is marked as one not to learn from.", _REMOVE)
    messages = [_message(raw, ignored, not_read) for raw in _raw_messages(values, shape[0])]
    if not messages:
        raise CorpusError("The conversation has no messages.", _REMOVE)
    if not (answers := [one for one in messages if one["role"] == "assistant"]):
        raise CorpusError("The conversation has no answer: no message is the assistant's.", _REMOVE)
    if all(one.get(COUNTS) is False for one in answers):
        raise CorpusError("Every answer of the conversation is marked as one not to learn.", _REMOVE)
    messages = _with_system(messages, values)
    read = {*shape, *SYSTEM, *TOOLS, TEMPLATE_KWARGS, *MARKS, *others, *_EXTRA.get(shape[0], ())}
    texts = {one["content"].strip() for one in messages}
    not_read += not_needed(values, read, texts, "The record")
    return Conversation(messages, template_kwargs_of(values), not_read)


def holds_conversation(text: str) -> bool:
    """Whether a text is nothing but messages as JSON, each with a role and its content."""
    is_likely = text.lstrip()[:1] == "[" and any(name in text[:2000] for name in ('"role"', '"from"'))
    messages = parsed(text) if is_likely else None
    return isinstance(messages, list) and all(
        isinstance(one, Mapping) and ({"role", "content"} <= one.keys() or {"from", "value"} <= one.keys())
        for one in messages
    )


def as_stored(messages: Sequence[Message], template_kwargs: Mapping[str, Any] | None = None) -> str:
    """A conversation as one line of JSON, always the same for the same messages and values for the template."""
    names = ("role", "content", COUNTS)
    listed: Any = [{name: one[name] for name in names if name in one} for one in messages]
    if template_kwargs:
        listed = {"messages": listed, TEMPLATE_KWARGS: dict(sorted(template_kwargs.items()))}
    return json.dumps(listed, ensure_ascii=False)


def from_stored(line: str) -> list[Message]:
    """The messages of `as_stored`."""
    return stored_conversation(line).messages


def stored_conversation(line: str) -> Conversation:
    """The conversation of `as_stored`."""
    value = json.loads(line)
    return Conversation(value) if isinstance(value, list) else Conversation(value["messages"], value[TEMPLATE_KWARGS])


def as_text(messages: Sequence[Message]) -> str:
    """A conversation to read, to count words of and to cluster: each role before its content."""
    return "\n\n".join(f"{one['role']}: {one['content']}" for one in messages)


_EXTRA: Final = {"instruction": ("input", HISTORY), "prompt": (HISTORY,)}  # further fields of a shape


def _raw_messages(values: Mapping[str, Any], first: str) -> list[Any]:
    if first not in _EXTRA:
        return _listed(values[first], first)
    history = values.get(HISTORY)
    earlier = [] if is_blank(history) else [{"role": role, "content": text} for role, text in pairs_of(history)]
    if first == "prompt":
        return [*earlier, *_turn(values, "prompt", "user"), *_turn(values, "completion", "assistant")]
    parts = [values["instruction"], values.get("input") or ""]
    if not all(isinstance(part, str) for part in parts):
        raise CorpusError("“instruction” and “input” must be texts.", "Fix or remove the record.")
    question = {"role": "user", "content": "\n\n".join(part for part in parts if part)}
    return [*earlier, question, {"role": "assistant", "content": values["output"]}]


def _with_system(messages: list[Message], values: Mapping[str, Any]) -> list[Message]:
    """The messages, after the system prompt that a field of its own holds."""
    prompts = {name: values[name] for name in SYSTEM if not is_blank(values.get(name))}
    for name, prompt in prompts.items():
        content = _content(prompt)
        if messages[0]["role"] != "system":
            messages = [{"role": "system", "content": content}, *messages]
        elif messages[0]["content"].strip() != content.strip():
            raise CorpusError(f"“{name}” and the conversation have different system prompts.", "Keep one of them.")
    return messages


def _turn(values: Mapping[str, Any], name: str, role: str) -> list[Any]:
    """The messages of a prompt or of a completion: a text is one message."""
    value = values[name]
    messages = parsed(value)
    if not isinstance(value, str) or _is_messages(messages):
        return _listed(messages, name)
    if role == "assistant" and not value.strip():
        raise CorpusError(f"“{name}” is empty: there is no answer.", NextStep.IMPORT_PROMPTS_AS_TEXT)
    return [{"role": role, "content": value}]


def _is_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "role" in one for one in value)


def _listed(value: object, name: str) -> list[Any]:
    messages = parsed(value)
    if isinstance(messages, str) and messages.lstrip()[:1] in ("[", "{"):
        problem = f"“{name}” is text that looks like a list of Python, not like JSON."
        raise CorpusError(
            problem, "Write the column by json.dumps(messages), or write the table as .parquet or .jsonl."
        )
    if not isinstance(messages, list):
        raise CorpusError(f"“{name}” must be a list of messages, got {type(messages).__name__}.", _EXAMPLE)
    return messages


def _message(raw: object, ignored: Collection[str], not_read: list[str]) -> Message:
    if not isinstance(raw, Mapping):
        raise CorpusError("A message must be an object with a role and its content.", _EXAMPLE)
    raw = without(raw, ignored, not_read)
    role = _role(raw)
    if any(not is_blank(parsed(raw.get(name))) for name in _CALLS):
        raise CorpusError("A message calls a tool, which is not supported.", _REMOVE)
    content = _content(_one_of(raw, "content", "value"))
    if role != "system" and not content.strip():  # an empty system message switches a template's default one off
        raise CorpusError(f"A message of the role “{role}” is empty.", _REMOVE)
    counts = learns(raw, f"A message of the role “{role}”")
    if counts and role != "assistant" and is_blank(raw.get("weight")):
        raise CorpusError(f"A message of the role “{role}” is marked as one to learn; only answers are.", _REMOVE)
    not_read += not_needed(raw, _OF_MESSAGE, {content.strip()}, f"A message of the role “{role}”")
    is_excluded = counts is False and role == "assistant"
    return {"role": role, "content": content} | ({COUNTS: False} if is_excluded else {})


def _one_of(raw: Mapping[str, Any], first: str, second: str) -> Any:
    """The value of a field that has two names."""
    values = [raw[name] for name in (first, second) if raw.get(name) is not None]
    if len(values) == 2 and values[0] != values[1]:
        raise CorpusError(f"A message has both “{first}” and “{second}”, which differ.", "Fix or remove the record.")
    return values[0] if values else None


def _role(raw: Mapping[str, Any]) -> str:
    given = _one_of(raw, "role", "from")
    name = given.strip().lower() if isinstance(given, str) else ""
    if name in _ROLES:
        return _ROLES[name]
    if name in _OF_TOOLS:
        raise CorpusError(f"A message has the role “{name}”: calls of tools are not supported.", _REMOVE)
    shown = short(given)[:40] if isinstance(given, str) else "nothing"
    raise CorpusError(f"A message has the unknown role “{shown}”.", f"Known roles are {', '.join(_ROLES)}.")


def _content(value: object) -> str:
    """The text of a message's content: a text, or a list of parts of text."""
    if isinstance(value, list):
        if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in value):
            raise CorpusError("A message has a part that is not text.", "Remove the record.")
        value = "".join(_content(part.get("text")) for part in value)
    if not isinstance(value, str):
        raise CorpusError(f"A message's content must be text, got {type(value).__name__}.", "Fix or remove the record.")
    return valid_text(value)
