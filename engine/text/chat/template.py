"""Conversations as the ids that a model was taught them in, by the chat template of its folder.

Ids equal those of transformers' `apply_chat_template`, but for one thing: a message that contains the text of a special
token (`<|im_end|>`) keeps it as ordinary characters, so that nobody can end a turn or begin one in another's name.
An expert that was trained with another template than its base's has it in its own folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.errors import ChatTemplateError
from engine.files import EXPERT_CARD
from engine.foreign_files import read_object, read_text, short
from engine.text.blocks import MASK_RULE
from engine.text.chat.answers import (
    ASSISTANT,
    BEGINS,
    OLD_RULE,
    Locator,
    Message,
    TemplateToken,
    encode_rendered,
    harmless,
    loses_marks,
    within,
)
from engine.text.chat.conversations import COUNTS
from engine.text.chat.template_process import NotRenderedError, Rendered, render
from engine.text.tokenizer import Tokenizer, load_tokenizer, text_after

TEMPLATE, _OLDER, _CONFIG = "chat_template.jinja", "chat_template.json", "tokenizer_config.json"
_TOKENS, _GENERATION = "special_tokens_map.json", "generation_config.json"
_ARGUMENTS = ("messages", "tools", "documents", "chat_template", "conversations")  # not names of tokens
_MAX_BYTES = 16 << 20
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
_Span = TypeVar("_Span")


class ChatTemplate:
    """The chat template of one model. `special_tokens` are the texts by name that the template may refer to."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], name: str = "this model") -> None:
        self.source = source
        self._values: dict[str, Any] = {}  # of other variables
        self.special_tokens = dict(special_tokens)
        self._name = name
        self._with_json = lru_cache(maxsize=16)(self._copy_with)  # each finds once where its answers end
        self._reply_ends: dict[str, tuple[tuple[int, ...], tuple[int, ...], int | None]] = {}

    def with_values(self, values: Mapping[str, Any]) -> ChatTemplate:
        """The same template with values for its variables, such as `enable_thinking`."""
        return self._with_json(json.dumps(values)) if values else self

    def _copy_with(self, values: str) -> ChatTemplate:
        template = ChatTemplate(self.source, self.special_tokens, self._name)
        template._values = json.loads(values)
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
        return self._render(messages, add_generation_prompt).text

    def _encode(
        self, tokenizer: Tokenizer, messages: Sequence[Message], add_generation_prompt: bool
    ) -> tuple[ChatTemplate, Sequence[Message], Rendered, list[TemplateToken]]:
        """The tokens of a conversation, and what they are of. Only the template writes control tokens, no message."""
        [values] = self._harmless(tokenizer, [self._values])  # a value is also somebody's text
        template = self if values == self._values else self.with_values(values)
        marked = template._harmless(tokenizer, messages)
        rendered = template._render(marked, add_generation_prompt)
        return template, marked, rendered, encode_rendered(tokenizer, rendered.text)

    def encode_prompt(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> tuple[list[int], int]:
        """The ids of a conversation up to where the answer begins, and the index of the first with a user's words.

        Before it stands what the template writes of its own and what came before the first user, such as a system's
        text. It is 0 where a user says nothing.
        """
        template, marked, rendered, tokens = self._encode(tokenizer, messages, True)
        start = template._user_begins(marked, rendered.text)
        return [one.id for one in tokens], next((i for i, one in enumerate(tokens) if one.end > start >= 0), 0)

    def _user_begins(self, messages: Sequence[Message], text: str) -> int:
        """Where in a prompt the words of the first user begin; negative where there are none."""
        number = next((i for i, one in enumerate(messages) if one.get("role") == "user"), None)
        if number is None or not isinstance(content := messages[number].get("content"), str):
            return -1
        for words in filter(None, (content, content.strip())):  # many templates strip it
            if text.count(words) == 1:
                return text.index(words)
        marked = [*messages[:number], {**messages[number], "content": f"{BEGINS}{content}"}, *messages[number + 1 :]]
        return self._render(marked, True).text.find(BEGINS)

    def encode_answers(
        self, tokenizer: Tokenizer, messages: Sequence[Message], rule: int = MASK_RULE
    ) -> tuple[list[int], NDArray[np.bool_]]:
        """The ids of a conversation, and a mask [T] of the assistant's: its words and the end of its turn.

        An answer that is excluded (`counts` is False) does not count.
        Where the template ends an answer only by the token that opens the next message, that token also comes after the
        last one. `rule` 1 is that of trainings that began under it. Raises ChatTemplateError when the template does not
        show where the answers are.
        """
        template, marked, rendered, tokens = self._encode(tokenizer, messages, False)
        ids = [token.id for token in tokens]
        if "endgeneration" in self.source:
            return ids, within(tokens, self._without_excluded(messages, rendered.answers))
        if rule == OLD_RULE:
            end_id = template._ends_of_a_reply(tokenizer)[2]
            spans = template._locator.answers_by_old_rule(marked, rendered.text, tokens, end_id)
            return ids, within(tokens, self._without_excluded(messages, spans))
        answers = template._locator.answers(marked, rendered.text, tokens, tokenizer.control_ids)
        counted = self._without_excluded(messages, answers)
        spans, limits = [(one.start, one.end) for one in counted], [max(one.end, one.limit) for one in counted]
        is_answer_T = within(tokens, spans, limits)
        if marked[-1].get("role") == ASSISTANT and answers[-1].closing is None:
            last, earlier, _ = template._ends_of_a_reply(tokenizer)
            opens_next = () if last else earlier[:1]  # ends answers that others follow
            ids, is_last = [*ids, *opens_next], np.full(len(opens_next), marked[-1].get(COUNTS) is not False)
            is_answer_T = np.concatenate([is_answer_T, is_last])
        return ids, is_answer_T

    def _without_excluded(self, messages: Sequence[Message], answers: Sequence[_Span]) -> Sequence[_Span]:
        """Those of the answers, one for each message of the assistant, that are not excluded from the loss."""
        marks = [message.get(COUNTS) for message in messages if message.get("role") == ASSISTANT]
        is_counted = [mark is not False for mark in marks]
        if all(is_counted):
            return answers
        if len(answers) != len(is_counted):
            raise ChatTemplateError(
                f"The chat template of {self._name} does not mark each answer once, so none can be excluded from the "
                "loss.",
                "Remove the marks of what to learn, or choose a model with another chat template.",
            )
        return [answer for answer, is_one in zip(answers, is_counted, strict=True) if is_one]

    def turn_ends(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """The control tokens that end a turn, that of a last answer first; maybe none.

        Also the one by which earlier answers end otherwise, unless the template also writes it inside an answer.
        """
        last, earlier, _ = self._ends_of_a_reply(tokenizer)
        return tuple(dict.fromkeys([*last, *earlier]))

    def _ends_or_none(self, tokenizer: Tokenizer) -> frozenset[int]:
        """The same as a set; empty for a template that cannot write a question and its answer."""
        try:
            return frozenset(self.turn_ends(tokenizer))
        except ChatTemplateError:  # it may write other conversations
            return frozenset()

    def _render(self, messages: Sequence[Message], add_generation_prompt: bool, *, also_none: bool = False) -> Rendered:
        if not messages and not also_none:
            raise ChatTemplateError("The conversation has no messages.", "Give at least one.")
        # As transformers: many templates write a None as a word
        plain = [
            {name: value for name, value in message.items() if value is not None and name != COUNTS}
            for message in messages
        ]
        try:
            values = {**self.special_tokens, **self._values}
            rendered = render(self.source, plain, values, opens_answer=add_generation_prompt)
        except NotRenderedError as error:
            problem = f"The chat template of {self._name} cannot write this conversation: {short(error).rstrip('.')}."
            raise ChatTemplateError(problem, _CHANGE) from None
        if loses_marks(rendered.text, [*plain, self._values]):
            raise ChatTemplateError(
                f"The chat template of {self._name} writes the text of a control token as Python writes an object.",
                "Remove that text, or choose a model with another chat template.",
            )
        return rendered

    def _harmless(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> Sequence[Message]:
        texts = {tokenizer.written(id) for id in tokenizer.special_ids | self._ends_or_none(tokenizer)} - {""}
        pattern = re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)) or "(?!)")
        return [harmless(message, pattern) for message in messages]

    def limits(self, tokenizer: Tokenizer, stops: frozenset[int]) -> list[str]:
        """What a training by this template cannot teach, as sentences; `stops` end answers, as do its own tokens."""
        try:
            ids, is_answer = self.encode_answers(tokenizer, _TALK[:2])
        except ChatTemplateError:  # it may write other conversations
            return []
        last = np.array(ids)[is_answer][-1:].tolist()
        sentences = []
        if not {*stops, *self.turn_ends(tokenizer)}.intersection(last):
            sentences.append(
                "The chat template shows no token that ends an answer, so the expert is not taught to stop: generate "
                "with stop sequences, or choose a seed model whose template ends a turn."
            )
        text, prompts = self.render(_TALK), (self.render(_TALK[:n], add_generation_prompt=True) for n in (1, 3))
        for prompt in prompts:
            if rest := text_after(text, prompt):
                sentences.append(
                    f"The prompt for an answer ends with “{short(rest)}”, which the template leaves out of the "
                    "conversations that are trained on: answers are learned without it."
                )
                break
        return sentences

    def masks_changed(self, tokenizer: Tokenizer) -> bool:
        """Whether rule 1 masks a conversation of two answers otherwise than the present rule."""
        try:
            (_, old), (_, present) = (self.encode_answers(tokenizer, _TALK, rule) for rule in (OLD_RULE, MASK_RULE))
            return not np.array_equal(old, present)
        except ChatTemplateError:  # one of the rules refuses it
            return True

    @cached_property
    def _locator(self) -> Locator:
        special = [text for text in self.special_tokens.values() if text]
        return Locator(lambda *given: self._render(*given, also_none=True).text, special, self._name)

    def _ends_of_a_reply(self, tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        """The control tokens after a last answer; the one that ends an earlier answer; the first after the last one.

        The first are without those of a prompt for another answer, which some templates always write.
        """
        if tokenizer.sha256 not in self._reply_ends:
            text = self.render(_TALK[:2])
            if (begin := text.rfind(_REPLY)) < 0:
                raise ChatTemplateError(f"The chat template of {self._name} leaves out the answer.", _REPAIR)
            after = [one.id for one in encode_rendered(tokenizer, text) if one.start >= begin + len(_REPLY)]
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
            answers = self._locator.answers(messages, text, encode_rendered(tokenizer, text), tokenizer.control_ids)
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


def load_chat_template(folder: Path, shown_name: str = "") -> ChatTemplate | None:
    """The chat template of a model's folder; None if it has none. Nothing of it is run.

    Errors of rendering say `shown_name`, or else the folder.
    """
    source = read_text(folder, TEMPLATE, _MAX_BYTES, ChatTemplateError)
    for name in (
        _CONFIG,
        _OLDER,
    ):  # as AutoTokenizer, which does not know the last place: older processors wrote it
        if source is None:
            value = (read_object(folder, name, _MAX_BYTES, ChatTemplateError) or {}).get("chat_template")
            source = None if value is None else _default(value, folder / name)
    return None if source is None else ChatTemplate(source, _special_tokens(folder), shown_name or str(folder))


def turn_ends_of(folder: Path, tokenizer: Tokenizer, *, with_eos: bool = False) -> frozenset[int]:
    """The tokens that end a turn of a model; none without a template, or with one that cannot be rendered.

    `with_eos` adds the EOS token that the template is given.
    """
    try:
        template = load_chat_template(folder)
    except ChatTemplateError:  # it says so to whoever asks for a conversation; texts can be continued nevertheless
        return frozenset()
    if template is None:
        return frozenset()
    named = template.special_tokens.get("eos_token", "") if with_eos else ""
    ids = tokenizer.encode(named, control_tokens=True) if named else []
    return template._ends_or_none(tokenizer) | frozenset(ids if len(ids) == 1 else ())


def _default(value: Any, path: Path) -> str:
    """The template of a configuration: a text, or the one of several that is named `default`."""
    if isinstance(value, list):
        value = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
    if isinstance(value, dict):
        value = value.get("default")
    if not isinstance(value, str):
        raise ChatTemplateError(f"chat_template in {path} is not a text and names no default template.", _REPAIR)
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
    return {name: text for name, text in texts.items() if isinstance(text, str) and name not in _ARGUMENTS}


def template_folder(base: Path, expert: Path) -> Path:
    """The folder of an expert's chat template: its own where it has one, else its base's."""
    return expert if (expert / EXPERT_CARD).is_file() and (expert / TEMPLATE).is_file() else base


def own_template(seed: Path, folder: Path) -> ChatTemplate | None:
    """The chat template of another tool's folder; None where it has none, or one that writes as the seed's does."""
    if (own := load_chat_template(folder)) is None:
        return None
    of_seed = load_chat_template(seed)
    tokens = {**(of_seed.special_tokens if of_seed else {}), **own.special_tokens}
    template = ChatTemplate(own.source, tokens, str(folder))
    return None if of_seed is not None and of_seed.sha256 == template.sha256 else template


def save_template(template: ChatTemplate, expert: Path) -> None:
    """Writes a template, with the special tokens that it names, into an expert's folder."""
    (expert / TEMPLATE).write_text(template.source, encoding="utf-8")
    _write(expert / _CONFIG, dict(sorted(template.special_tokens.items())))


def stop_ids(tokenizer: Tokenizer, base: Path, template: Path) -> frozenset[int]:
    """The tokens that end an answer: those of a base, and those of the folder of its expert's chat template.

    `template` is that of `template_folder`. An expert's own folder need not name a token.
    """
    of_base = tokenizer.stop_ids_of(base) | turn_ends_of(base, tokenizer)
    return of_base if template == base else of_base | turn_ends_of(template, tokenizer, with_eos=True)


def copy_template(expert: Path, target: Path) -> None:
    """Puts an expert's own chat template, if it has one, into the folder of what is made of it.

    A tokenizer there gets the special tokens that go with it, a model the end of its turns.
    """
    template = load_chat_template(expert) if template_folder(target, expert) == expert else None
    if template is None:
        return
    (target / TEMPLATE).write_text(template.source, encoding="utf-8")
    file = target / _CONFIG
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    written = {name: one.get("content") if isinstance(one, dict) else one for name, one in config.items()}
    changed = {name: text for name, text in template.special_tokens.items() if written.get(name) != text}
    changed |= {"chat_template": template.source} if "chat_template" in config else {}
    _write(file, config | changed)
    add_turn_ends(target)


def add_turn_ends(folder: Path) -> None:
    """Adds what ends a turn of a model's chat template, and its EOS token, to the tokens at which other tools stop."""
    if not (folder / _GENERATION).is_file():
        return
    config = json.loads((folder / _GENERATION).read_text(encoding="utf-8"))
    named = config.get("eos_token_id")
    ids = named if isinstance(named, list) else [] if named is None else [named]
    if more := sorted(turn_ends_of(folder, load_tokenizer(folder), with_eos=True) - {*ids}):
        _write(folder / _GENERATION, config | {"eos_token_id": [*ids, *more]})


def _write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")
