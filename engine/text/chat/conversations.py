"""Conversations in the shapes that data sets have, as messages of a role and its content.

A record has one of these shapes, named as TRL and the hub's data sets name them:
`messages` (OpenAI: role and content), `conversations` (ShareGPT: from and value), `prompt` and `completion` (two texts,
or two lists of messages), `instruction`, `input` and `output` (Alpaca). All records of a file have the same shape.
What a template cannot show of every model is refused: calls of tools, their answers, and parts that are not text.

Of the other fields some are read, as LLaMA-Factory, axolotl, TRL and OpenAI write them: a system prompt in a field of
its own, earlier turns (`history`), values for the template (`chat_template_kwargs`), and marks of what to learn. Some
say nothing of the words. Any other is refused where it has a value: what a record says is never dropped in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from engine.errors import CorpusError, NextStep
from engine.foreign_files import short
from engine.text.streams import valid_text

Message = dict[str, Any]  # role, content, and `counts`: False on an answer that is not learned

SHAPES: Final = (("messages",), ("conversations",), ("prompt", "completion"), ("instruction", "output"))
COUNTS: Final = "counts"
_ROLES: Final = {
    "system": "system",
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bing", "bard", "bot"), "assistant"),
}
_OF_TOOLS: Final = ("tool", "tool_call", "tool_response", "function", "function_call", "observation")
_CALLS: Final = ("tool_calls", "function_call")
_EXAMPLE: Final = 'Write {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}.'
_REMOVE: Final = "Remove the record."
SYSTEM: Final = ("system", "system_prompt")
HISTORY: Final = "history"
TOOLS: Final = ("tools", "functions")
TEMPLATE_KWARGS: Final = "chat_template_kwargs"
MARKS: Final = ("weight", "train", "training", "trainable", "learn", "loss")  # 1 or true: an answer to learn
_OF_MESSAGE: Final = ("role", "from", "content", "value", *_CALLS, *MARKS)
_EXTRA: Final = {"instruction": ("input", HISTORY), "prompt": (HISTORY,)}  # further fields of a shape
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
# The arguments of transformers' apply_chat_template, what it gives to a template, and the special tokens.
_TAKEN = (
    r"messages|conversations?|tools|documents|chat_template|tokenize|add_generation_prompt|continue_final_message|"
    r"padding|truncation|max_length|return_.*|tokenizer_kwargs|.*_token|self|raise_exception|strftime_now|tojson|_.*"
)
NAME = rf"^(?!(?:{_TAKEN})$)[A-Za-z][A-Za-z0-9_]{{0,63}}$"


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
    names = ", ".join(" with ".join(f"“{name}”" for name in shape) for shape in SHAPES)
    raise CorpusError(f"The record is not a conversation: it has none of {names}.", _EXAMPLE)


def conversation_of(
    values: Mapping[str, Any], shape: Sequence[str], others: Collection[str] = (), ignored: Collection[str] = ()
) -> Conversation:
    """The conversation of a record of a shape; raises CorpusError when it has no answer to learn.

    `others` are fields that somebody else reads (the domain's), `ignored` those that are left out on purpose.
    """
    not_read: list[str] = []
    values = _without(values, ignored, not_read)
    if any(not _is_blank(_parse(values.get(name))) for name in TOOLS):
        raise CorpusError("The conversation offers tools to the model, which is not supported.", _REMOVE)
    if _learns(values, "The record") is False:
        raise CorpusError("The record is marked as one not to learn from.", _REMOVE)
    messages = [_message(raw, ignored, not_read) for raw in _raw_messages(values, shape[0])]
    if not messages:
        raise CorpusError("The conversation has no messages.", _REMOVE)
    if not (answers := [message for message in messages if message["role"] == "assistant"]):
        raise CorpusError("The conversation has no answer: no message is the assistant's.", _REMOVE)
    if all(answer.get(COUNTS) is False for answer in answers):
        raise CorpusError("Every answer of the conversation is marked as one not to learn.", _REMOVE)
    messages = _with_system(messages, values)
    read = {*shape, *SYSTEM, *TOOLS, TEMPLATE_KWARGS, *MARKS, *others, *_EXTRA.get(shape[0], ())}
    texts = {message["content"].strip() for message in messages}
    not_read += _names_not_needed(values, read, texts, "The record")
    return Conversation(messages, _template_kwargs(values), not_read)


def holds_conversation(text: str) -> bool:
    """Whether a text is nothing but messages as JSON, each with a role and its content."""
    is_likely = text.lstrip()[:1] == "[" and any(name in text[:2000] for name in ('"role"', '"from"'))
    messages = _parse(text) if is_likely else None
    return isinstance(messages, list) and all(
        isinstance(message, Mapping) and ({"role", "content"} <= message.keys() or {"from", "value"} <= message.keys())
        for message in messages
    )


def as_stored(messages: Sequence[Message], template_kwargs: Mapping[str, Any] | None = None) -> str:
    """A conversation as one line of JSON, always the same for the same messages and values for the template."""
    names = ("role", "content", COUNTS)
    listed: Any = [{name: message[name] for name in names if name in message} for message in messages]
    if template_kwargs:
        listed = {"messages": listed, TEMPLATE_KWARGS: dict(sorted(template_kwargs.items()))}
    return json.dumps(listed, ensure_ascii=False)


def stored_conversation(line: str) -> Conversation:
    """The conversation of `as_stored`."""
    value = json.loads(line)
    return Conversation(value) if isinstance(value, list) else Conversation(value["messages"], value[TEMPLATE_KWARGS])


def as_text(messages: Sequence[Message]) -> str:
    """A conversation to read, to count words of and to cluster: each role before its content."""
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _raw_messages(values: Mapping[str, Any], first: str) -> list[Any]:
    if first not in _EXTRA:
        return _as_list(values[first], first)
    history = values.get(HISTORY)
    earlier = [] if _is_blank(history) else [{"role": role, "content": text} for role, text in _pairs_of(history)]
    if first == "prompt":
        return [*earlier, *_read_turn(values, "prompt", "user"), *_read_turn(values, "completion", "assistant")]
    parts = [values["instruction"], values.get("input") or ""]
    if not all(isinstance(part, str) for part in parts):
        raise CorpusError("“instruction” and “input” must be texts.")
    question = {"role": "user", "content": "\n\n".join(part for part in parts if part)}
    return [*earlier, question, {"role": "assistant", "content": values["output"]}]


def _with_system(messages: list[Message], values: Mapping[str, Any]) -> list[Message]:
    for name in SYSTEM:
        if _is_blank(values.get(name)):
            continue
        content = _content(values[name])
        if messages[0]["role"] != "system":
            messages = [{"role": "system", "content": content}, *messages]
        elif messages[0]["content"].strip() != content.strip():
            raise CorpusError(f"“{name}” and the conversation have different system prompts.", "Keep one of them.")
    return messages


def _read_turn(values: Mapping[str, Any], name: str, role: str) -> list[Any]:
    """The messages of a prompt or of a completion: a text is one message."""
    value = values[name]
    messages = _parse(value)
    is_list = isinstance(messages, list) and all(
        isinstance(message, Mapping) and "role" in message for message in messages
    )
    if not isinstance(value, str) or (is_list and messages):
        return _as_list(messages, name)
    if role == "assistant" and not value.strip():
        raise CorpusError(f"“{name}” is empty: there is no answer.", NextStep.IMPORT_PROMPTS_AS_TEXT)
    return [{"role": role, "content": value}]


def _as_list(value: object, name: str) -> list[Any]:
    messages = _parse(value)
    if isinstance(messages, str) and messages.lstrip()[:1] in ("[", "{"):
        problem = f"“{name}” is text that looks like a list of Python, not like JSON."
        remedy = "Write the column by json.dumps(messages), or write the table as .parquet or .jsonl."
        raise CorpusError(problem, remedy)
    if not isinstance(messages, list):
        raise CorpusError(f"“{name}” must be a list of messages, got {type(messages).__name__}.", _EXAMPLE)
    return messages


def _message(raw: object, ignored: Collection[str], not_read: list[str]) -> Message:
    if not isinstance(raw, Mapping):
        raise CorpusError("A message must be an object with a role and its content.", _EXAMPLE)
    raw = _without(raw, ignored, not_read)
    role = _role(raw)
    if any(not _is_blank(_parse(raw.get(name))) for name in _CALLS):
        raise CorpusError("A message calls a tool, which is not supported.", _REMOVE)
    content = _content(_one_of(raw, "content", "value"))
    if role != "system" and not content.strip():  # an empty system message switches a template's default one off
        raise CorpusError(f"A message of the role “{role}” is empty.", _REMOVE)
    counts = _learns(raw, f"A message of the role “{role}”")
    if counts and role != "assistant" and _is_blank(raw.get("weight")):
        raise CorpusError(f"A message of the role “{role}” is marked as one to learn; only answers are.", _REMOVE)
    not_read += _names_not_needed(raw, _OF_MESSAGE, {content.strip()}, f"A message of the role “{role}”")
    is_excluded = counts is False and role == "assistant"
    return {"role": role, "content": content} | ({COUNTS: False} if is_excluded else {})


def _one_of(raw: Mapping[str, Any], first: str, second: str) -> Any:
    """The value of a field that has two names."""
    values = [raw[name] for name in (first, second) if raw.get(name) is not None]
    if len(values) == 2 and values[0] != values[1]:
        raise CorpusError(f"A message has both “{first}” and “{second}”, which differ.")
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
    if isinstance(value, list):
        if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in value):
            raise CorpusError("A message has a part that is not text.", _REMOVE)
        value = "".join(_content(part.get("text")) for part in value)
    if not isinstance(value, str):
        raise CorpusError(f"A message's content must be text, got {type(value).__name__}.")
    return valid_text(value)


def is_variable(name: str) -> bool:
    """Whether it may be the name of a value that somebody gives."""
    return re.fullmatch(NAME, name) is not None


def clean_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are given; null is what was left out. Raises ValueError for a name that is not a variable's."""
    for name in values:
        if not is_variable(name):
            raise ValueError(f"it must not set “{name[:40]}”, which is not a variable or is set by this server")
    return {name: value for name, value in values.items() if value is not None}


def _is_blank(value: object) -> bool:
    """Whether a value says nothing: null, no text, an empty list or object, or one of such values; also as JSON."""
    if isinstance(value, str):
        return value.strip() in ("", "[]", "{}", "null")
    if isinstance(value, Mapping):
        return all(map(_is_blank, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_blank, value))
    return value is None


def _learns(values: Mapping[str, Any], what: str) -> bool | None:
    """Whether the marks of a message or record say that it is learned from; None without a mark."""
    marks = {name: values[name] for name in MARKS if not _is_blank(values.get(name))}
    for name, value in marks.items():
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise CorpusError(
                f"{what} has “{name}”: {short(value)}; an answer counts in full (1, true) or not at all (0, false).",
                NextStep.LEAVE_FIELDS_OUT,
            )
    if len({bool(value) for value in marks.values()}) > 1:
        raise CorpusError(f"{what} has marks that differ: {_quote(marks)}.")
    return bool(next(iter(marks.values()))) if marks else None


def _without(values: Mapping[str, Any], ignored: Collection[str], not_read: list[str]) -> Mapping[str, Any]:
    """The other fields; the names of those that are left out and have a value are appended to `not_read`."""
    not_read += [name for name in ignored if not _is_blank(values.get(name))]
    return {name: value for name, value in values.items() if name not in ignored} if ignored else values


def _names_not_needed(values: Mapping[str, Any], read: Collection[str], texts: Collection[str], what: str) -> list[str]:
    """The names of the fields with a value that are not read, because they say nothing of the words.

    `texts` are the conversation's own: a field that repeats one is not among them. Raises CorpusError for any other.
    """
    names = [name for name in values if name not in read and not _is_blank(values[name])]
    names = [name for name in names if not (isinstance(values[name], str) and values[name].strip() in texts)]
    if others := [name for name in names if not _says_nothing(name, values[name])]:
        also = f" (also {_quote(others[1:])})" if others[1:] else ""
        problem = f"{what} has “{short(others[0])}”, which is not read: {short(values[others[0]])[:60]}{also}."
        raise CorpusError(problem, NextStep.LEAVE_FIELDS_OUT)
    return names


def _template_kwargs(values: Mapping[str, Any]) -> dict[str, Any]:
    given = values.get(TEMPLATE_KWARGS)
    if _is_blank(given):
        return {}
    given = _parse(given)
    if not isinstance(given, Mapping):
        raise CorpusError(
            f"“{TEMPLATE_KWARGS}” must be an object of values for the chat template, got {type(given).__name__}."
        )
    kwargs = {name: value for name, value in given.items() if value is not None}
    for name in kwargs:
        if not is_variable(str(name)):
            raise CorpusError(f"“{TEMPLATE_KWARGS}” sets “{short(name)}”, which a record may not.")
    return kwargs


def _parse(value: object) -> object:
    """A list or object that a table holds as JSON; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _pairs_of(history: object) -> Iterator[tuple[str, str]]:
    turns = _parse(history)
    for turn in turns if isinstance(turns, Iterable) and not isinstance(turns, str) else [turns]:
        if not (isinstance(turn, list | tuple) and len(turn) == 2 and all(isinstance(text, str) for text in turn)):
            raise CorpusError(f"“{HISTORY}” must be a list of pairs, each of a question and its answer.")
        yield "user", turn[0]
        yield "assistant", turn[1]


def _says_nothing(name: str, value: object) -> bool:
    words = _WORDS.sub("_", name).lower()
    return bool(_SAYS_NOTHING.fullmatch(words) or (_COUNTS_SOMETHING.fullmatch(words) and _is_number(value)))


def _is_number(value: object) -> bool:
    if isinstance(value, Mapping | list | tuple):
        return all(map(_is_number, value.values() if isinstance(value, Mapping) else value))
    if isinstance(value, str):
        with suppress(ValueError):
            return isinstance(float(value), float)
    return value is None or isinstance(value, int | float)


def _quote(names: Iterable[str]) -> str:
    return ", ".join(f"“{short(name)}”" for name in names)
