"""Where the answers of a rendered conversation are: from the end of the prompt for one to the end of its turn.

A template is a program, so its text is compared with texts that it renders of almost the same conversation: with a mark
where a content begins or ends, up to an answer, or with another message after it. A place that these do not show
exactly is refused. No answer reaches into the next message, but for the one token that opens it where a template ends
no turn (GLM 4.5): there this token is what ends an answer.

Marks are noncharacters of Unicode, which no text that is exchanged holds; a text that holds one of them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.errors import ChatTemplateError
from engine.foreign_files import short
from engine.text.tokenizer import Tokenizer

OPEN, CLOSE = "\ufdd0", "\ufdd1"  # around text that must stay text
BEGINS, ANSWER_ENDS, OTHER_BEGINS = "\ufdd2", "\ufdd3", "\ufdd4"  # of contents: a user's, an answer's, another's
_MARK: Final = re.compile(f"[{OPEN}{CLOSE}{BEGINS}{ANSWER_ENDS}{OTHER_BEGINS}]")
_MARKED: Final = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}|[{OPEN}{CLOSE}]")
_ESCAPED: Final = "\\ufdd0"  # how Python and JSON write the first mark
Message: TypeAlias = Mapping[str, Any]
Render: TypeAlias = Callable[[Sequence[Message], bool], str]  # messages, whether up to where the answer begins
USER, ASSISTANT = "user", "assistant"
_MARKS = {BEGINS: USER, ANSWER_ENDS: ASSISTANT, OTHER_BEGINS: ""}
_ANY_MARK = re.compile(f"[{''.join(_MARKS)}]")
_QUESTION = {"role": USER, "content": "Is it so?"}
OLD_RULE = 1  # `MASK_RULE` of trainings that began before rule 2


class TemplateToken(NamedTuple):
    """An id and the characters (start, end) of the rendered text that it stands for."""

    id: int
    start: int
    end: int


def harmless(fields: Mapping[str, Any], control: re.Pattern[str]) -> dict[str, Any]:
    """The fields of a message, or values for a template, with marks around every text of a control token.

    A list or an object is written by the template in ways that lose marks, such as `string`. Raises ChatTemplateError
    where one holds the text of a control token, and where any text holds a mark.
    """
    marked: dict[str, Any] = {}
    for name, value in fields.items():
        texts = list(_texts(value))
        if mark := next(filter(None, map(_MARK.search, texts)), None):
            raise ChatTemplateError(
                f"“{short(name)}” holds the character U+{ord(mark.group()):X}, which Unicode reserves for programs.",
                "Remove it.",
            )
        if isinstance(value, str):
            marked[name] = control.sub(f"{OPEN}\\g<0>{CLOSE}", value)
            continue
        if match := next(filter(None, map(control.search, texts)), None):
            raise ChatTemplateError(
                f"“{short(name)}” holds “{short(match.group())}”, the text of a control token, inside a list or an "
                "object.",
                "Remove it, or give it as a plain text.",
            )
        marked[name] = value
    return marked


def loses_marks(rendered: str, fields: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a template wrote the text of a control token, in one of these fields, as Python writes objects."""
    return _ESCAPED in rendered and any(OPEN in text for text in _texts(fields))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for item in value.items() for text in _texts(item))
    elif isinstance(value, Sequence):
        yield from (text for one in value for text in _texts(one))


def encode_rendered(tokenizer: Tokenizer, text: str) -> list[TemplateToken]:
    """The tokens of a rendered text: those of the template, and ordinary ones for what is marked."""
    tokens: list[TemplateToken] = []
    for start, piece, is_marked in _split_at_marks(text):
        ids, offsets = tokenizer.encode_with_offsets(piece, control_tokens=not is_marked, continues=start > 0)
        if is_marked and tokenizer.control_ids.intersection(ids):  # a control token that is not special
            for position, character in enumerate(piece, start):  # so that no token is of several characters
                ids, _ = tokenizer.encode_with_offsets(character, control_tokens=False, continues=True)
                tokens += [TemplateToken(id, position, position + 1) for id in ids]
        else:
            tokens += [TemplateToken(id, start + a, start + b) for id, (a, b) in zip(ids, offsets, strict=True)]
    return tokens


def _split_at_marks(text: str) -> Iterator[tuple[int, str, bool]]:
    """The pieces of a rendered text: where each starts, and whether it is marked. A mark that lost its other is cut."""
    start = 0
    for mark in _MARKED.finditer(text):
        if start < mark.start():
            yield start, text[start : mark.start()], False
        if mark.group(1):
            yield mark.start(1), mark.group(1), True
        start = mark.end()
    if start < len(text):
        yield start, text[start:], False


def within(
    tokens: Sequence[TemplateToken], spans: Sequence[tuple[int, int]], limits: Sequence[int] | None = None
) -> NDArray[np.bool_]:
    """A mask [T] of the tokens that share a character with one of the spans, and end before the span's limit."""
    _, starts_T, ends_T = np.array(tokens, dtype=np.int64).reshape(-1, 3).T
    is_inside_T = np.zeros(len(tokens), dtype=np.bool_)
    for i, (start, end) in enumerate(spans):
        shares_T = (starts_T < end) & (ends_T > start)
        is_inside_T |= shares_T if limits is None else shares_T & (ends_T <= limits[i])
    return is_inside_T


class AnswerSpan(NamedTuple):
    """An answer in a text: its turn goes from `start` to `end`, its content to `content_end`.

    `limit` is where the content of the next message begins, or the end of the text. `closing` is the control token that
    ends the turn; None where ordinary text does, or nothing.
    """

    start: int
    content_end: int
    end: int
    limit: int
    closing: int | None


@dataclass(frozen=True)
class Locator:
    """Locates answers in what one template renders. `special` are the texts of its special tokens."""

    render: Render
    special: Sequence[str]
    template_name: str

    def answers(
        self, messages: Sequence[Message], text: str, tokens: Sequence[TemplateToken], control: frozenset[int]
    ) -> list[AnswerSpan]:
        """The answers of a conversation in its text and tokens. Raises ChatTemplateError where one is not found."""
        marks, answers = self._marks(messages, text), []
        numbers = [number for number, message in enumerate(messages) if message.get("role") == ASSISTANT]
        starts = [self._start(messages, number, text) for number in numbers]
        at_ends = [i for i, (role, _) in enumerate(marks) if role == ASSISTANT]
        for number, start, next_start, i in zip(numbers, starts, [*starts, len(text)][1:], at_ends, strict=True):
            content_end, before = marks[i][1], marks[i - 1][1] if i else 0
            if not before <= start <= content_end:
                raise self._refusal(number, "its prompt does not end between the message before it and its own words")
            is_followed_by_other = i + 1 < len(marks) and marks[i + 1][0] != ASSISTANT
            limit = marks[i + 1][1] if is_followed_by_other else next_start
            after = (one for one in tokens if content_end <= one.start and one.end <= limit and one.id in control)
            end, closing = self._end(messages, number, text, content_end, limit, next(after, None))
            answers.append(AnswerSpan(start, content_end, end, limit, closing))
        return answers

    def _marks(self, messages: Sequence[Message], text: str) -> list[tuple[str, int]]:
        """Where the contents of others begin and those of answers end, with their roles, in the order of the text."""
        roles = [message["role"] for message in messages if message.get("role") in (USER, ASSISTANT)]
        for stripped in ((), (ASSISTANT,), (USER, "system"), (ASSISTANT, USER, "system")):  # what a template trims
            if stripped and all(_content(one) == _content(one).strip() for one in messages if one["role"] in stripped):
                continue
            shown = self.render([_with_mark(one, stripped) for one in messages], False)
            matches = enumerate(_ANY_MARK.finditer(shown))
            marks = [(_MARKS[mark.group()], mark.start() - number) for number, mark in matches]
            if _ANY_MARK.sub("", shown) == text and [role for role, _ in marks if role] == roles:
                return marks
        raise self._refusal(len(messages) - 1, "it does not show every message once and in order")

    def _start(self, messages: Sequence[Message], number: int, text: str) -> int:
        """Where the prompt for an answer ends. What a prompt holds and the text leaves out is not looked for."""
        try:
            prompt = self.render(messages[:number], True)
        except ChatTemplateError:
            if number:
                raise
            prompt = None  # many templates write nothing without a first message
        if prompt is not None and text.startswith(prompt):
            return len(prompt)
        answer = {**messages[number], "content": BEGINS}
        shown = self.render([*messages[:number], answer, *messages[number + 1 :]], False)
        begin = shown.find(BEGINS)
        is_exact = begin >= 0 and shown.startswith(text[:begin])
        if is_exact and (prompt is None or prompt.startswith(shown[:begin])):
            return begin
        raise self._order_error(number)

    def _end(
        self, messages: Sequence[Message], number: int, text: str, begin: int, limit: int, control: TemplateToken | None
    ) -> tuple[int, int | None]:
        """Where the turn of an answer ends whose content does at `begin`, and the control token that ends it.

        `control` is the first one before the content of the next message. It may be the one that opens that message.
        """
        if control is not None and not text[begin : control.start].strip():
            return control.end, control.id
        if number + 1 == len(messages) and self.render(messages, True) != text:  # what follows only closes the turn
            return (control.end, control.id) if control is not None else (limit, None)
        following = str(messages[number + 1].get("role")) if number + 1 < len(messages) else USER
        size = self._size_of_end(messages[: number + 1], following, text[:begin], text[begin:limit])
        if control is not None and control.start <= begin + size:
            return control.end, control.id
        return begin + size, None

    def _size_of_end(self, messages: Sequence[Message], role: str, before: str, after: str) -> int:
        """The number of characters by which ordinary text ends a turn; 0 where that cannot be distinguished.

        `after` goes from the answer to the content of the next message, which has this role. What ends a turn stands
        before the prompt for another answer, before another answer in templates that write two in a row, or before that
        by which a message of the same role begins when it is the first.
        """

        def render_before(*earlier: Message, role: str) -> str:
            return self.render([*earlier, {"role": role, "content": BEGINS}], False).partition(BEGINS)[0]

        def first_header() -> str:
            header = render_before(role=role)
            for special in self.special:
                header = header.removeprefix(special)
            return header

        candidates: list[tuple[Callable[[], str], Callable[[], str]]] = [
            (lambda: self.render(messages, True), self._header),
            (lambda: render_before(*messages, role=ASSISTANT), self._header),
        ]
        if role != ASSISTANT:
            candidates.append((lambda: render_before(*messages, role=role), first_header))
        size = 0
        for render, next_header in candidates:
            with suppress(ChatTemplateError):  # it refuses that order of roles
                shown, header = render(), next_header()
                end = shown[len(before) : -len(header)] if header else ""
                if shown.startswith(before) and shown[len(before) :].endswith(header) and after.startswith(end):
                    size = max(size, len(end))
        return size

    def _header(self) -> str:
        """What a prompt for an answer adds to the text of a question; empty where it is not clear."""
        opened, closed = (self.render([_QUESTION], opens) for opens in (True, False))
        for special in ("", *self.special):
            if opened.startswith(start := closed.removesuffix(special)):
                return opened[len(start) :]
        return ""

    def answers_by_old_rule(
        self, messages: Sequence[Message], text: str, tokens: Sequence[TemplateToken], end_id: int | None
    ) -> list[tuple[int, int]]:
        """The spans (start, end) of answers, as trainings mask them that began under `MASK_RULE` 1.

        An answer ended at the next `end_id`, the first control token after the only answer of a question, or else with
        its message: where answers end in other ways than the last, what users say was also counted.
        """

        def prefix(some: Sequence[Message], opens: bool) -> int:
            written = self.render(some, opens) if some else ""
            if text.startswith(written):
                return len(written)
            raise self._order_error(len(some))

        spans = []
        for number, message in enumerate(messages):
            if message.get("role") == ASSISTANT:
                start = prefix(messages[:number], True)
                end = next((token.end for token in tokens if token.start >= start and token.id == end_id), None)
                spans.append((start, prefix(messages[: number + 1], False) if end is None else end))
        return spans

    def _order_error(self, number: int) -> ChatTemplateError:
        return ChatTemplateError(
            f"The chat template of {self.template_name} writes the first {number} messages differently when others "
            "follow, so it cannot be seen where the answer begins.",
            "Mark the answers in the template by {% generation %} and {% endgeneration %}.",
        )

    def _refusal(self, number: int, why: str) -> ChatTemplateError:
        return ChatTemplateError(
            f"The answer in message {number + 1} cannot be located in what the chat template of {self.template_name} "
            f"writes: {why}.",
            "Remove the conversation, or mark the answers in the template by {% generation %} and {% endgeneration %}.",
        )


def _content(message: Message) -> str:
    return str(message.get("content", ""))


def _with_mark(message: Message, stripped: Sequence[str]) -> Message:
    """The message with a mark at the end of an answer, or at the beginning of another's content."""
    role, content = message.get("role"), _content(message)
    content = content.strip() if role in stripped else content
    if role == ASSISTANT:
        return {**message, "content": content + ANSWER_ENDS}
    return {**message, "content": (BEGINS if role == USER else OTHER_BEGINS) + content}
