"""Conversations in the shapes that data sets have, as messages of a role and its content.

A record has one of these shapes, named as TRL and the hub's data sets name them:
`messages` (OpenAI: role and content), `conversations` (ShareGPT: from and value), `prompt` and `completion` (two texts,
or two lists of messages), `instruction`, `input` and `output` (Alpaca). All records of a file have the same shape.
What a template cannot show of every model is refused: calls of tools, their answers, and parts that are not text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.errors import CorpusError
from engine.text.valid_text import valid_text

Message = dict[str, str]  # role, content

SHAPES: Final = (("messages",), ("conversations",), ("prompt", "completion"), ("instruction", "output"))
OPTIONAL_FIELDS: Final = ("input", "tools")  # read where a file has them
ROLES: Final = ("system", "user", "assistant")
_SHARED: Final = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
_CALLS: Final = ("tool_calls", "function_call")
_EXAMPLE: Final = 'Write {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}.'


def shape_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of the shape that a record has; raises CorpusError when it has none."""
    for shape in SHAPES:
        if all(values.get(name) is not None for name in shape):
            return shape
    raise CorpusError(f"The record is no conversation: it has none of {shape_names()}.", _EXAMPLE)


def shape_names() -> str:
    """The fields of every shape, for a sentence."""
    return ", ".join(" with ".join(f"“{name}”" for name in shape) for shape in SHAPES)


def conversation_of(values: Mapping[str, Any], shape: Sequence[str]) -> list[Message]:
    """The messages of a record of a shape; raises CorpusError when it is no conversation with an answer."""
    if values.get("tools"):
        raise CorpusError("The conversation offers tools to the model, which is not supported.", "Remove the record.")
    messages = [_message(raw) for raw in _raw_messages(values, shape[0])]
    if not messages:
        raise CorpusError("The conversation has no messages.", "Remove the record.")
    if not any(one["role"] == "assistant" for one in messages):
        raise CorpusError("The conversation has no answer: no message is the assistant's.", "Remove the record.")
    return messages


def as_stored(messages: Sequence[Message]) -> str:
    """A conversation as one line of JSON, always the same for the same messages."""
    return json.dumps([{name: one[name] for name in ("role", "content")} for one in messages], ensure_ascii=False)


def from_stored(line: str) -> list[Message]:
    """The messages of `as_stored`."""
    messages: list[Message] = json.loads(line)
    return messages


def as_text(messages: Sequence[Message]) -> str:
    """A conversation to read, to count words of and to cluster: each role before its content."""
    return "\n\n".join(f"{one['role']}: {one['content']}" for one in messages)


def _raw_messages(values: Mapping[str, Any], first: str) -> list[Any]:
    if first == "prompt":
        return [*_turn(values, "prompt", "user"), *_turn(values, "completion", "assistant")]
    if first == "instruction":
        parts = [values["instruction"], values.get("input") or ""]
        if not all(isinstance(part, str) for part in parts):
            raise CorpusError("“instruction” and “input” must be texts.", "Fix or remove the record.")
        question = {"role": "user", "content": "\n\n".join(part for part in parts if part)}
        return [question, {"role": "assistant", "content": values["output"]}]
    return _listed(values[first], first)


def _turn(values: Mapping[str, Any], name: str, role: str) -> list[Any]:
    """The messages of a prompt or of a completion: a text is one message."""
    value = values[name]
    return [{"role": role, "content": value}] if isinstance(value, str) else _listed(value, name)


def _listed(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise CorpusError(f"“{name}” must be a list of messages, got {type(value).__name__}.", _EXAMPLE)
    return value


def _message(raw: object) -> Message:
    if not isinstance(raw, Mapping):
        raise CorpusError("A message must be an object with a role and its content.", _EXAMPLE)
    if any(raw.get(name) for name in _CALLS):
        raise CorpusError("A message calls a tool, which is not supported.", "Remove the record.")
    if raw.get("weight") not in (None, 1):
        raise CorpusError("A message has a weight; every answer counts here.", "Remove the weight or the record.")
    role, content = _role(raw), _content(raw.get("content", raw.get("value")))
    if role != "system" and not content.strip():  # an empty system message switches a template's default one off
        raise CorpusError(f"A message of the role “{role}” is empty.", "Remove the record.")
    return {"role": role, "content": content}


def _role(raw: Mapping[str, Any]) -> str:
    given = raw.get("role", raw.get("from"))
    role = _SHARED.get(given) if isinstance(given, str) and "role" not in raw else given
    if role in ROLES:
        return str(role)
    shown = str(given)[:40] if isinstance(given, str) and given.isprintable() else "nothing"
    names = ROLES if "role" in raw else tuple(_SHARED)
    raise CorpusError(f"A message has the unknown role “{shown}”.", f"Known roles are {', '.join(names)}.")


def _content(value: object) -> str:
    """The text of a message's content: a text, or a list of parts of text."""
    if isinstance(value, list):
        if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in value):
            raise CorpusError("A message has a part that is not text.", "Remove the record.")
        value = "".join(_content(part.get("text")) for part in value)
    if not isinstance(value, str):
        raise CorpusError(f"A message's content must be text, got {type(value).__name__}.", "Fix or remove the record.")
    return valid_text(value)
