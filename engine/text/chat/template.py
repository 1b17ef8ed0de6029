"""Conversations as the ids that a model was taught them in, by the chat template of its folder.

Ids equal those of transformers' `apply_chat_template`, but for one thing: a message that contains the text of a special
token (`<|im_end|>`) keeps it as ordinary characters, so that nobody can end a turn or begin one in another's name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from engine.errors import ChatTemplateError
from engine.foreign_files import read_object, read_text, short
from engine.text.blocks import MASK_RULE
from engine.text.chat.answers import ASSISTANT, Locator, Message, Token
from engine.text.chat.conversations import COUNTS
from engine.text.chat.old_masks import OLD_RULE, answers_by_old_rule
from engine.text.chat.template_process import NotRendered, Rendered, render
from engine.text.tokenizer import Tokenizer

_FILE, _OLDER, _CONFIG = "chat_template.jinja", "chat_template.json", "tokenizer_config.json"
_TOKENS = "special_tokens_map.json"
_MAX_BYTES = 16 << 20
_OPEN, _CLOSE = "\U000f0000", "\U000f0001"  # around text that must stay text; of the private use area
_START = "\U000f0002"  # before the first words of a user
_MARKED = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}|[{_OPEN}{_CLOSE}]")
_QUESTION, _REPLY = "Is it so?", "It is so indeed."
_TALK = (
    {"role": "user", "content": _QUESTION},
    {"role": "assistant", "content": _REPLY},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "So it goes."},
)
_THOUGHTS = ("thinking", "reasoning_content", "reasoning")  # names of an answer's thought
_CHANGE = "Change the roles or the order of the messages, or choose a model with another chat template."
_REPAIR = "Give the folder of a model with a chat template that transformers can render."


_Answer = TypeVar("_Answer")


def counts(message: Message) -> bool:
    """Whether a message is not excluded from the loss."""
    return message.get(COUNTS) is not False


class ChatTemplate:
    """The chat template of one model. `special_tokens` are the texts by name that the template may refer to."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], place: str = "this model") -> None:
        self.source = source
        self._values: dict[str, Any] = {}  # of other variables
        self.special_tokens = dict(special_tokens)
        self._place = place
        self._reply_ends: dict[str, tuple[tuple[int, ...], tuple[int, ...], int | None]] = {}

    def with_values(self, values: Mapping[str, Any]) -> ChatTemplate:
        """The same template with values for its variables, such as `enable_thinking`."""
        if not values:
            return self
        template = ChatTemplate(self.source, self.special_tokens, self._place)
        template._values = dict(values)
        return template

    def unread(self, names: Iterable[str]) -> list[str]:
        """Those of these variables that the template does not read."""
        return [name for name in names if not re.search(rf"\b{re.escape(name)}\b", self.source)]

    @property
    def sha256(self) -> str:
        """Equal for two templates that render every conversation alike."""
        used = {name: text for name, text in self.special_tokens.items() if name in self.source}
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
        template = self._with_harmless_values(tokenizer)
        rendered = template._rendered(self._harmless(tokenizer, messages), add_generation_prompt)
        return [token.id for token in encoded(tokenizer, rendered.text)]

    def first_words(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> int:
        """The index in `encode` of the first token with words of the first user; 0 where there are none.

        Before it stands what the template writes by itself and what came before the user, such as a system's text.
        """
        place = next((i for i, one in enumerate(messages) if one.get("role") == "user"), None)
        if place is None or not isinstance(content := messages[place].get("content"), str):
            return 0
        template = self._with_harmless_values(tokenizer)
        marked = [*messages[:place], {**messages[place], "content": f"{_START}{content}"}, *messages[place + 1 :]]
        start = template._rendered(self._harmless(tokenizer, marked), True).text.find(_START)
        if start < 0:
            return 0
        text = template._rendered(self._harmless(tokenizer, messages), True).text
        return next((i for i, token in enumerate(encoded(tokenizer, text)) if token.end > start), 0)

    def encode_answers(
        self, tokenizer: Tokenizer, messages: Sequence[Message], rule: int = MASK_RULE
    ) -> tuple[list[int], list[bool]]:
        """The ids of a conversation, and which of them are the assistant's: its words and the end of its turn.

        An answer that is excluded (`counts` is False) is none of them.
        Where the template ends an answer only by the token that opens the next message, that token also comes after the
        last one. `rule` 1 is that of trainings that began under it. Raises ChatTemplateError when the template does not
        show where the answers are.
        """
        if (template := self._with_harmless_values(tokenizer)) is not self:
            return template.encode_answers(tokenizer, messages, rule)
        marked = self._harmless(tokenizer, messages)
        rendered = self._rendered(marked, False)
        tokens = encoded(tokenizer, rendered.text)
        if "endgeneration" in self.source:
            return [token.id for token in tokens], within(tokens, self._counted(messages, rendered.answers))
        if rule == OLD_RULE:
            end_id = self._ends_of_a_reply(tokenizer)[2]
            spans = answers_by_old_rule(self._write, marked, rendered.text, tokens, end_id, self._place)
            return [token.id for token in tokens], within(tokens, self._counted(messages, spans))
        answers = self._locator.answers(marked, rendered.text, tokens, tokenizer.control_ids)
        ids, is_answer = [token.id for token in tokens], [False] * len(tokens)
        for number, token in enumerate(tokens):
            is_answer[number] = any(
                token.start < one.end and token.end > one.start and token.end <= max(one.end, one.limit)
                for one in self._counted(messages, answers)
            )
        if marked[-1].get("role") == ASSISTANT and answers[-1].closing is None:
            opens_next = self._opens_next(tokenizer)
            ids, is_answer = [*ids, *opens_next], [*is_answer, *[counts(marked[-1])] * len(opens_next)]
        return ids, is_answer

    def _counted(self, messages: Sequence[Message], answers: Sequence[_Answer]) -> Sequence[_Answer]:
        """Those of the answers, one for each message of the assistant, that are not excluded from the loss."""
        is_counted = [counts(message) for message in messages if message.get("role") == ASSISTANT]
        if all(is_counted):
            return answers
        if len(answers) != len(is_counted):
            raise ChatTemplateError(
                f"The chat template of {self._place} does not mark each answer once, so none can be excluded from the "
                "loss.",
                "Remove the marks of what to learn, or choose a model with another chat template.",
            )
        return [answer for answer, is_one in zip(answers, is_counted, strict=True) if is_one]

    def turn_ends(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """The control tokens that end a turn, that of a last answer first; maybe none.

        Also the one by which earlier answers end otherwise, unless the template writes it inside an answer, too.
        """
        last, earlier, _ = self._ends_of_a_reply(tokenizer)
        return tuple(dict.fromkeys([*last, *earlier]))

    def _known_ends(self, tokenizer: Tokenizer) -> frozenset[int]:
        """The same as a set; empty for a template that cannot write a question and its answer."""
        try:
            return frozenset(self.turn_ends(tokenizer))
        except ChatTemplateError:  # it may write other conversations
            return frozenset()

    def _rendered(
        self, messages: Sequence[Message], add_generation_prompt: bool, *, also_none: bool = False
    ) -> Rendered:
        if not messages and not also_none:
            raise ChatTemplateError("The conversation has no messages.", "Give at least one.")
        # As transformers: many templates write a None as a word
        plain = [
            {name: value for name, value in message.items() if value is not None and name != COUNTS}
            for message in messages
        ]
        try:
            values = {**self.special_tokens, **self._values}
            return render(self.source, plain, values, opens_answer=add_generation_prompt)
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

    def _with_harmless_values(self, tokenizer: Tokenizer) -> ChatTemplate:
        """This template, or one whose values cannot write a control token either: a value is somebody's text, too."""
        harmless = self._harmless(tokenizer, [self._values])[0]
        return self if harmless == self._values else self.with_values(harmless)

    def limits(self, tokenizer: Tokenizer, stops: frozenset[int]) -> list[str]:
        """What a training by this template cannot teach, as sentences; `stops` end answers besides its own tokens."""
        try:
            ids, is_answer = self.encode_answers(tokenizer, _TALK[:2])
        except ChatTemplateError:  # it may write other conversations
            return []
        last = [id for id, counts in zip(ids, is_answer, strict=True) if counts][-1:]
        sentences = []
        if not {*stops, *self.turn_ends(tokenizer)}.intersection(last):
            sentences.append(
                "The chat template shows no token that ends an answer, so the expert is not taught to stop: generate "
                "with stop sequences, or choose a seed model whose template ends a turn."
            )
        text, prompts = self.render(_TALK), (self.render(_TALK[:n], add_generation_prompt=True) for n in (1, 3))
        for prompt in prompts:
            if rest := "" if text.startswith(prompt) else prompt[len(_common_start(prompt, text)) :]:
                sentences.append(
                    f"The prompt for an answer ends with “{short(rest)}”, which the template leaves out of the "
                    "conversations that are trained on: answers are learned without it."
                )
                break
        return sentences

    def masks_changed(self, tokenizer: Tokenizer) -> bool:
        """Whether rule 1 masks a conversation of two answers otherwise than the present rule."""
        try:
            return self.encode_answers(tokenizer, _TALK, OLD_RULE) != self.encode_answers(tokenizer, _TALK)
        except ChatTemplateError:  # one of the rules refuses it
            return True

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self._write, [text for text in self.special_tokens.values() if text], self._place)

    def _write(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        return self._rendered(messages, add_generation_prompt, also_none=True).text

    def _opens_next(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """The token that ends answers which others follow, where the template writes none after the last."""
        last, earlier, _ = self._ends_of_a_reply(tokenizer)
        return () if last else earlier[:1]

    def _ends_of_a_reply(self, tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        """The control tokens after a last answer; the one that ends an earlier answer; the first after the last one.

        The first are without those of a prompt for another answer, which some templates always write.
        """
        if tokenizer.sha256 not in self._reply_ends:
            text = self.render(_TALK[:2])
            if (begin := text.rfind(_REPLY)) < 0:
                raise ChatTemplateError(f"The chat template of {self._place} leaves out the answer.", _REPAIR)
            after = [one.id for one in encoded(tokenizer, text) if one.start >= begin + len(_REPLY)]
            written = [id for id in after if id in tokenizer.control_ids]
            last = written
            if written and self.render(_TALK[:2], add_generation_prompt=True) == text:
                last = [id for id in [self._closing(tokenizer, _TALK[:2])] if id is not None]
            earlier = self._closing(tokenizer, _TALK)
            is_inside = earlier is not None and tokenizer.written(earlier) in self._inside_an_answer()
            ends = () if earlier is None or is_inside else (earlier,)
            self._reply_ends[tokenizer.sha256] = (tuple(last), ends, written[0] if written else None)
        return self._reply_ends[tokenizer.sha256]

    def _closing(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> int | None:
        """The control token that ends the first answer; None without one, or where it cannot be located."""
        try:
            text = self.render(messages)
            answers = self._locator.answers(messages, text, encoded(tokenizer, text), tokenizer.control_ids)
        except ChatTemplateError:
            return None
        return answers[0].closing

    def _inside_an_answer(self) -> str:
        """What the template writes between the thought of an answer and its words; empty where it shows no thought."""
        thought = dict.fromkeys(_THOUGHTS, _QUESTION)
        try:
            text = self.render([{"role": "user", "content": "?"}, {**_TALK[1], **thought}])
        except ChatTemplateError:
            return ""
        return text.partition(_QUESTION)[2].rpartition(_REPLY)[0]


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


def encoded(tokenizer: Tokenizer, text: str) -> list[Token]:
    """The tokens of a rendered text: those of the template, and ordinary ones for what is marked."""
    tokens: list[Token] = []
    for start, piece, is_marked in _split(text):
        ids, offsets = tokenizer.encode_with_offsets(piece, control_tokens=not is_marked, continues=start > 0)
        if is_marked and tokenizer.control_ids.intersection(ids):  # a control token that is not special
            ids, offsets = _by_character(tokenizer, piece)
        tokens += [Token(id, start + a, start + b) for id, (a, b) in zip(ids, offsets, strict=True)]
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


def within(tokens: Sequence[Token], spans: Sequence[tuple[int, int]]) -> list[bool]:
    """A mask of the tokens that share a character with one of the spans."""
    return [any(token.start < end and token.end > start for start, end in spans) for token in tokens]


def _common_start(one: str, other: str) -> str:
    """The text with which both begin."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(character for character, _ in same)


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
