"""Conversations as the ids that a model was taught them in, by the chat template of its folder.

Ids equal those of transformers' `apply_chat_template`, but for one thing: a message that contains the text of a special
token (`<|im_end|>`) keeps it as ordinary characters, so that nobody can end a turn or begin one in another's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from engine.errors import ChatTemplateError
from engine.foreign_files import read_object, read_text, short
from engine.text.chat.template_process import NotRendered, Rendered, render
from engine.text.tokenizer import Tokenizer

Message: TypeAlias = Mapping[str, Any]  # role, content and whatever else a template reads

_FILE, _OLDER, _CONFIG = "chat_template.jinja", "chat_template.json", "tokenizer_config.json"
_TOKENS = "special_tokens_map.json"
_MAX_BYTES = 16 << 20
_OPEN, _CLOSE = "\U000f0000", "\U000f0001"  # around text that must stay text; of the private use area
_START = "\U000f0002"  # before the first words of a user
_MARKED = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}|[{_OPEN}{_CLOSE}]")
_QUESTION, _REPLY = "Is it so?", "It is so indeed."
_CHANGE = "Change the roles or the order of the messages, or choose a model with another chat template."
_REPAIR = "Give the folder of a model with a chat template that transformers can render."


class _Token(NamedTuple):
    """An id and the characters (start, end) of the rendered text that it stands for."""

    id: int
    start: int
    end: int


class ChatTemplate:
    """The chat template of one model. `special_tokens` are the texts by name that the template may refer to."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], place: str = "this model") -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._place = place
        self._turn_ends: dict[str, tuple[int, ...]] = {}

    @property
    def sha256(self) -> str:
        """Equal for two templates that render every conversation alike."""
        used = {name: text for name, text in self._special_tokens.items() if name in self.source}
        return hashlib.sha256(json.dumps([self.source, used], sort_keys=True).encode()).hexdigest()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
        """The text of a conversation; with `add_generation_prompt` up to where the answer begins.

        Raises ChatTemplateError, in bounded time, when the template refuses the messages or does not come to an end.
        """
        return self._rendered(messages, add_generation_prompt).text

    def encode(
        self, tokenizer: Tokenizer, messages: Sequence[Message], *, add_generation_prompt: bool = False
    ) -> list[int]:
        """The ids of a conversation. Control tokens are written by the template alone, never by a message."""
        rendered = self._rendered(self._harmless(tokenizer, messages), add_generation_prompt)
        return [token.id for token in _encoded(tokenizer, rendered.text)]

    def first_words(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> int:
        """The index in `encode` of the first token with words of the first user; 0 where there are none.

        Before it stands what the template writes by itself and what came before the user, such as a system's text.
        """
        place = next((i for i, one in enumerate(messages) if one.get("role") == "user"), None)
        if place is None or not isinstance(content := messages[place].get("content"), str):
            return 0
        marked = [*messages[:place], {**messages[place], "content": f"{_START}{content}"}, *messages[place + 1 :]]
        start = self._rendered(self._harmless(tokenizer, marked), True).text.find(_START)
        if start < 0:
            return 0
        text = self._rendered(self._harmless(tokenizer, messages), True).text
        return next((i for i, token in enumerate(_encoded(tokenizer, text)) if token.end > start), 0)

    def encode_answers(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """The ids of a conversation, and which of them are the assistant's: its words and the end of its turn.

        Raises ChatTemplateError when the template does not show where the answers are.
        """
        marked = self._harmless(tokenizer, messages)
        rendered = self._rendered(marked, False)
        tokens = _encoded(tokenizer, rendered.text)
        if "endgeneration" in self.source:
            is_answer = _within(tokens, rendered.answers)
        else:
            is_answer = self._answers_by_prefix(tokenizer, marked, rendered.text, tokens)
        return [token.id for token in tokens], is_answer

    def turn_ends(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """The control tokens that the template writes after an answer, the end of the turn first; maybe none."""
        if tokenizer.sha256 not in self._turn_ends:
            messages = [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _REPLY}]
            text = self.render(messages)
            if (start := text.rfind(_REPLY)) < 0:
                raise ChatTemplateError(f"The chat template of {self._place} leaves out the answer.", _REPAIR)
            tokens = _encoded(tokenizer, text)
            ends = (one.id for one in tokens if one.start >= start + len(_REPLY) and one.id in tokenizer.control_ids)
            self._turn_ends[tokenizer.sha256] = tuple(dict.fromkeys(ends))
        return self._turn_ends[tokenizer.sha256]

    def _known_ends(self, tokenizer: Tokenizer) -> frozenset[int]:
        """The same as a set; empty for a template that cannot write a question and its answer."""
        try:
            return frozenset(self.turn_ends(tokenizer))
        except ChatTemplateError:  # it may write other conversations
            return frozenset()

    def _rendered(self, messages: Sequence[Message], add_generation_prompt: bool) -> Rendered:
        if not messages:
            raise ChatTemplateError("The conversation has no messages.", "Give at least one.")
        # As transformers: many templates write a None as a word
        plain = [{name: value for name, value in message.items() if value is not None} for message in messages]
        try:
            return render(self.source, plain, self._special_tokens, opens_answer=add_generation_prompt)
        except NotRendered as error:
            raise ChatTemplateError(
                f"The chat template of {self._place} cannot write this conversation: {short(error).rstrip('.')}.",
                _CHANGE,
            ) from None

    def _harmless(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages, with marks around every text of a control token; the same messages if there is none."""
        texts = {tokenizer.written(id) for id in tokenizer.special_ids | self._known_ends(tokenizer)} - {""}
        pattern = re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)) or "(?!)")
        if not any(pattern.search(text) for text in _strings(messages)):
            return messages

        def mark(text: str) -> str:
            return pattern.sub(f"{_OPEN}\\g<0>{_CLOSE}", text.replace(_OPEN, "").replace(_CLOSE, ""))

        return [_mapped(message, mark) for message in messages]

    def _answers_by_prefix(
        self, tokenizer: Tokenizer, messages: Sequence[Message], text: str, tokens: Sequence[_Token]
    ) -> list[bool]:
        """A mask of the answers' tokens: from where the prompt for one ends to the end of its turn."""
        ends, spans = self.turn_ends(tokenizer)[:1], []
        for i, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            start = len(self._prefix(text, messages[:i], True))
            end = next((token.end for token in tokens if token.start >= start and token.id in ends), None)
            spans.append((start, len(self._prefix(text, messages[: i + 1], False)) if end is None else end))
        return _within(tokens, spans)

    def _prefix(self, text: str, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        """The part of the text that these first messages are."""
        prefix = self._rendered(messages, add_generation_prompt).text if messages else ""
        if text.startswith(prefix):
            return prefix
        raise ChatTemplateError(
            f"The chat template of {self._place} writes the first {len(messages)} messages differently when others "
            "follow, so it cannot be seen where the answer begins.",
            "Mark the answers in the template by {% generation %} and {% endgeneration %}.",
        )


def load_chat_template(folder: Path, place: str = "") -> ChatTemplate | None:
    """The chat template of a model's folder; None if it has none. Nothing of it is run.

    Errors of rendering name its `place`, or else the folder.
    """
    source = _source(folder)
    return None if source is None else ChatTemplate(source, _special_tokens(folder), place or str(folder))


def turn_ends_of(folder: Path, tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens that end a turn of a model; none without a template, or with one that cannot be rendered."""
    try:
        template = load_chat_template(folder)
    except ChatTemplateError:  # it says so to whoever asks for a conversation; texts can be continued nevertheless
        return frozenset()
    return template._known_ends(tokenizer) if template else frozenset()


def _source(folder: Path) -> str | None:
    """In the order of AutoTokenizer, which does not know the last place: older processors wrote it."""
    text = read_text(folder, _FILE, _MAX_BYTES, ChatTemplateError)
    if text is not None:
        return text
    for name in (_CONFIG, _OLDER):
        value = (read_object(folder, name, _MAX_BYTES, ChatTemplateError) or {}).get("chat_template")
        if value is not None:
            return _default(value, folder / name)
    return None


def _default(value: Any, place: Path) -> str:
    """The template of a configuration: a text, or the one of several that is named `default`."""
    if isinstance(value, list):
        value = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
    if isinstance(value, dict):
        value = value.get("default")
    if not isinstance(value, str):
        raise ChatTemplateError(f"chat_template in {place} is no text and names no default template.", _REPAIR)
    return value


def _special_tokens(folder: Path) -> dict[str, str]:
    """The texts of the special tokens by the names that a template uses (`bos_token`)."""
    config = read_object(folder, _CONFIG, _MAX_BYTES, ChatTemplateError) or {}
    older = read_object(folder, _TOKENS, _MAX_BYTES, ChatTemplateError) or {}
    values = config if "added_tokens_decoder" in config else {**config, **older}  # as transformers reads them
    named = {name: value for name, value in values.items() if name.endswith("_token")}
    if isinstance(extra := values.get("extra_special_tokens"), dict):
        named |= extra
    texts = {name: one.get("content") if isinstance(one, dict) else one for name, one in named.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str) and name not in _OTHERS}


_OTHERS = ("messages", "tools", "documents", "chat_template", "conversations")  # arguments of another meaning


def _encoded(tokenizer: Tokenizer, text: str) -> list[_Token]:
    """The tokens of a rendered text: those of the template, and ordinary ones for what is marked."""
    tokens: list[_Token] = []
    for start, piece, is_marked in _split(text):
        ids, offsets = tokenizer.encode_with_offsets(piece, control_tokens=not is_marked, continues=start > 0)
        if is_marked and tokenizer.control_ids.intersection(ids):  # a control token that is not special
            ids, offsets = _by_character(tokenizer, piece)
        tokens += [_Token(id, start + a, start + b) for id, (a, b) in zip(ids, offsets, strict=True)]
    return tokens


def _by_character(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The ids of each character alone, so that none is of several."""
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    for i, character in enumerate(text):
        of_one, _ = tokenizer.encode_with_offsets(character, control_tokens=False, continues=True)
        ids += of_one
        offsets += [(i, i + 1)] * len(of_one)
    return ids, offsets


def _split(text: str) -> Iterator[tuple[int, str, bool]]:
    """The pieces of a rendered text: where each starts, and whether it is marked. A mark that lost its other is cut."""
    if _OPEN not in text and _CLOSE not in text:
        yield 0, text, False
        return
    start = 0
    for mark in _MARKED.finditer(text):
        if start < mark.start():
            yield start, text[start : mark.start()], False
        if mark.group(1):
            yield mark.start(1), mark.group(1), True
        start = mark.end()
    if start < len(text):
        yield start, text[start:], False


def _within(tokens: Sequence[_Token], spans: Sequence[tuple[int, int]]) -> list[bool]:
    """A mask of the tokens that share a character with one of the spans."""
    return [any(token.start < end and token.end > start for start, end in spans) for token in tokens]


def _strings(value: Any) -> Iterator[str]:
    """Every text in a message, but for the names of its fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for one in value.values() for text in _strings(one))
    elif isinstance(value, Sequence):
        yield from (text for one in value for text in _strings(one))


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The same, with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _mapped(one, change) for name, one in value.items()}
    return [_mapped(one, change) for one in value] if isinstance(value, (list, tuple)) else value
