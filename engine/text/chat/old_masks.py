"""The rule by which answers were masked before `template.MASK_RULE` 2, for trainings that began under it.

An answer ended at the next token that ends the last one, or else with its message: where answers end in other ways than
the last, what users say was also counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import ChatTemplateError
from engine.text.chat.answers import ASSISTANT, Message, Render
from engine.text.chat.marked_text import Token

OLD_RULE = 1


def answers_by_old_rule(
    render: Render, messages: Sequence[Message], text: str, tokens: Sequence[Token], end_id: int | None, place: str
) -> list[tuple[int, int]]:
    """The spans (start, end) of answers; `end_id` is the first control token after the only answer of a question."""

    def prefix(some: Sequence[Message], opens: bool) -> int:
        written = render(some, opens) if some else ""
        if text.startswith(written):
            return len(written)
        raise ChatTemplateError(
            f"The chat template of {place} writes the first {len(some)} messages differently when others follow, so "
            "it cannot be seen where the answer begins.",
            "Mark the answers in the template by {% generation %} and {% endgeneration %}.",
        )

    spans = []
    for number, message in enumerate(messages):
        if message.get("role") == ASSISTANT:
            start = prefix(messages[:number], True)
            end = next((token.end for token in tokens if token.start >= start and token.id == end_id), None)
            spans.append((start, prefix(messages[: number + 1], False) if end is None else end))
    return spans
