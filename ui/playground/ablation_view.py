"""The HTML of an ablation: the perplexity of a text without each expert and each part."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ui.generation.ablation import Without


def losses_html(without: Sequence[Without]) -> str:
    """A table of perplexities, the greatest first; the first item of `without` is the text with all experts."""
    if not without:
        return ""
    full, *others = without
    ranked = sorted(others, key=lambda result: -result.perplexity)
    rows = "".join(_loss(result, full.perplexity) for result in ranked)
    body = rows or '<tr><td colspan="4">Nothing can be left out: there is one expert, without parts.</td></tr>'
    return (
        "<table><caption>Ablation</caption><thead><tr><th>Without</th>"
        '<th class="number">Perplexity</th><th class="number">Change</th><th>Greatest loss at</th></tr></thead>'
        f'<tbody>{body}</tbody></table><p class="reading">Prompt and answer, scored again with one '
        f"expert or part left out at a time. With all of them the perplexity is {full.perplexity:,.2f}; where it is "
        "lower without one, the text is likelier without it.</p>"
    )


def _loss(result: Without, full: float) -> str:
    word, nats = result.lost_most
    loss = f"<code>{html.escape(repr(word))}</code> ({nats:+.2f} nats)" if nats < 0 else "nowhere"
    return (
        f'<tr><td>{html.escape(result.name)}</td><td class="number">{result.perplexity:,.2f}</td>'
        f'<td class="number">{result.perplexity / full - 1:+.1%}</td><td>{loss}</td></tr>'
    )
