"""A model's chat template: shows messages as the text that the model was trained on, rendered in a sandbox.

Rendering is that of transformers (Jinja in an immutable sandbox, without access to files or code). Control tokens are
those that the template writes: the same letters inside a message stay ordinary text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.errors import ChatTemplateError
from engine.foreign_files import read_object, read_text, short
from engine.text.conversations import Message
from engine.text.tokenizer import Tokenizer

_FILE, _CONFIG, _MAP = "chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"
_MAX_BYTES = 16 << 20
_MARKS = re.compile(r"\{%-?\s*generation\s*-?%\}")
_BREAK = "\N{INVISIBLE SEPARATOR}"  # is put into what would be a control token inside a message, and taken out again

Span = tuple[int, int]  # characters


@dataclass(frozen=True)
class ChatTemplate:
    """A Jinja template and the special tokens that it may write, by their names (`bos_token`)."""

    source: str
    special: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """The hash of the template and of its special tokens."""
        canonical = json.dumps([self.source, dict(sorted(self.special.items()))])
        return hashlib.sha256(canonical.encode()).hexdigest()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
        """The messages as text; raises ChatTemplateError with what the template says."""
        return self._render(messages, add_generation_prompt=add_generation_prompt)[0]

    def encode(
        self, tokenizer: Tokenizer, messages: Sequence[Message], *, add_generation_prompt: bool = False
    ) -> list[int]:
        """The ids of the rendered messages, control tokens included."""
        safe = [_harmless(message, tokenizer) for message in messages]
        text = self.render(safe, add_generation_prompt=add_generation_prompt)
        return _encode(tokenizer, text, [], has_breaks=safe != list(messages))[0]

    def encode_answers(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """The ids of the rendered messages, and which of them are of the assistant's turns, the end token included."""
        safe = [_harmless(message, tokenizer) for message in messages]
        if _MARKS.search(self.source):
            text, spans = self._render(safe, with_marks=True)
        else:
            text = self.render(safe)
            spans = self._turns(tokenizer, safe, text)
        return _encode(tokenizer, text, spans, has_breaks=safe != list(messages))

    def _turns(self, tokenizer: Tokenizer, messages: Sequence[Message], text: str) -> list[Span]:
        """The characters of each answer: what the turn adds to the text that asks for it."""
        spans = []
        for number, message in enumerate(messages):
            if message["role"] == "assistant":
                asked = self.render(messages[:number], add_generation_prompt=True)
                answered = self.render(messages[: number + 1])
                if not (text.startswith(answered) and answered.startswith(asked)):
                    raise ChatTemplateError(
                        "The chat template shows an earlier turn in another way when more follow, and it does not mark "
                        "the answers ({% generation %}).",
                        "Use a template with these marks, or conversations of one answer.",
                    )
                spans.append((len(asked), _end_of_turn(tokenizer, answered, len(asked))))
        return spans

    def _render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = False, with_marks: bool = False
    ) -> tuple[str, list[Span]]:
        from transformers.utils.chat_template_utils import render_jinja_template

        special: dict[str, Any] = dict(self.special)
        try:
            rendered: Any = render_jinja_template(
                conversations=[[dict(message) for message in messages]],
                chat_template=self.source,
                add_generation_prompt=add_generation_prompt,
                return_assistant_tokens_mask=with_marks,
                **special,
            )
        except Exception as error:  # whatever an untrusted template raises
            raise ChatTemplateError(
                f"The chat template refuses the conversation ({short(error)}).",
                "Change the order or the roles of its messages, or choose another model.",
            ) from None
        texts, spans = rendered
        return str(texts[0]), [(int(a), int(b)) for a, b in spans[0]] if with_marks else []


def load_chat_template(folder: Path) -> ChatTemplate | None:
    """The chat template in a model's folder; None where there is none."""
    config = read_object(folder, _CONFIG, _MAX_BYTES, ChatTemplateError) or {}
    source = read_text(folder, _FILE, _MAX_BYTES, ChatTemplateError) or _in_config(config.get("chat_template"))
    if not source:
        return None
    special: dict[str, str] = {}
    for settings in (read_object(folder, _MAP, _MAX_BYTES, ChatTemplateError) or {}, config):
        for name, token in settings.items():
            written = token.get("content") if isinstance(token, dict) else token
            if name.endswith("_token") and isinstance(written, str):
                special[name] = written
    return ChatTemplate(source, special)


def _in_config(value: Any) -> str | None:
    """The template in older configurations: a text, or several with names."""
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _harmless(message: Message, tokenizer: Tokenizer) -> Message:
    """The message with a break inside of what reads as a control token."""
    content = message["content"]
    for token in tokenizer.control_tokens:
        if token in content:
            content = content.replace(token, f"{token[0]}{_BREAK}{token[1:]}")
    return {**message, "content": content}


def _end_of_turn(tokenizer: Tokenizer, text: str, start: int) -> int:
    """The end of an answer that begins at `start`: white space after its last control token belongs to no answer."""
    bare = text.rstrip()
    is_closed = len(bare) > start and any(bare.endswith(token) for token in tokenizer.control_tokens)
    return len(bare) if is_closed else len(text)


def _encode(
    tokenizer: Tokenizer, text: str, spans: Sequence[Span], *, has_breaks: bool
) -> tuple[list[int], list[bool]]:
    """The ids of a rendered text, and which of them hold a character of one of the spans."""
    ids: list[int] = []
    is_inside: list[bool] = []
    starts = [0]
    if has_breaks:  # control tokens are found while the breaks are there; between them the breaks are taken out
        starts = [0, *sorted({at for token in tokenizer.control_tokens for at in _borders(text, token)})]
    for first, end in pairwise([*starts, len(text)]):
        piece = text[first:end]
        kept = [i for i, character in enumerate(piece) if not has_breaks or character != _BREAK]
        is_control = piece in tokenizer.control_tokens or not has_breaks
        new_ids, offsets = tokenizer.encode_rendered("".join(piece[i] for i in kept), with_control=is_control)
        ids += new_ids
        for a, b in offsets:
            chars = {first + kept[i] for i in (a, max(a, b - 1))} if a < b else set()
            is_inside.append(any(s <= char < e for s, e in spans for char in chars))
    return ids, is_inside


def _borders(text: str, token: str) -> list[int]:
    """Where a control token begins and ends."""
    return [at for match in re.finditer(re.escape(token), text) for at in match.span()]
