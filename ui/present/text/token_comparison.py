"""Where two experts differ, as sentences and tinted text."""

from __future__ import annotations

import html
from collections.abc import Sequence

from workbench.answers.posteriors import Passage, TokenComparison
from workbench.number_format import nats, number

BETTER, WORSE = "0, 114, 178", "213, 94, 0"  # red, green, blue: distinct for all readers
_FULL = 3.0  # nats at which a tint is at its strongest
_STRONGEST = 0.55  # half transparent at most: the page's own text colour stays readable in light and dark


def contrast_words(answer: TokenComparison) -> str:
    """Which expert is better overall, by how much, and on how much text."""
    overall = answer.overall
    verb = "predicts better than" if overall > 0 else "predicts worse than"
    return (
        f"On {answer.domain} ({answer.split}), {answer.expert} {verb} {answer.rival} by {nats(abs(overall))} "
        f"over {answer.num_passages:,} passages from {answer.num_documents:,} documents."
    )


def passage_words(passage: Passage) -> str:
    """One passage: its document, length and mean difference."""
    shown = len(passage.tokens)
    cut = f", the first {shown:,} shown" if shown < passage.num_tokens else ""
    length = f"{passage.num_tokens:,} tokens{cut}"
    return f"From document {passage.document + 1}: {nats(passage.mean, signed=True)} over {length}"


def tinted_difference(tokens: Sequence[str], differences: Sequence[float]) -> str:
    """HTML of a text: blue where the expert predicted a token better than its rival, orange where worse.

    Text is escaped; the number stands in the tooltip, so that colour is not the only sign.
    """
    spans = [_span(token, value) for token, value in zip(tokens, differences, strict=True)]
    return f'<div style="white-space:pre-wrap;line-height:1.9;overflow-wrap:anywhere">{"".join(spans)}</div>'


def _span(token: str, value: float) -> str:
    colour = f"rgba({BETTER if value > 0 else WORSE}, {_STRONGEST * min(1.0, abs(value) / _FULL):.2f})"
    tooltip = f"{number(value, 2, signed=True)} nats"
    return f'<span style="background:{colour};border-radius:3px" title="{tooltip}">{html.escape(token)}</span>'
