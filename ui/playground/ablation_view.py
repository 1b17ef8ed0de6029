"""What a pane of the playground shows of a text that was read again without each expert and each part. Pure."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ui.generation.ablation import Without


def losses_html(without: Sequence[Without]) -> str:
    """What the text would lose without each, the dearest first; the text as it is comes first in `without`."""
    if not without:
        return ""
    whole, *others = without
    ranked = sorted(others, key=lambda one: -one.perplexity)
    rows = "".join(_loss(one, whole.perplexity) for one in ranked)
    told = rows or '<tr><td colspan="4">There is nothing to leave out: one expert without parts speaks here.</td></tr>'
    return (
        "<table><caption>What would change without…</caption><thead><tr><th>Without</th>"
        '<th class="number">Perplexity</th><th class="number">Change</th><th>Missed most at</th></tr></thead>'
        f'<tbody>{told}</tbody></table><p class="reading">Prompt and answer as they stand, read again with one '
        f"switched off at a time. With all that take part the perplexity is {whole.perplexity:,.2f}; where it is "
        "less without one, this text is likelier without it.</p>"
    )


def _loss(one: Without, whole: float) -> str:
    word, nats = one.lost_most
    missed = f"<code>{html.escape(repr(word))}</code> ({nats:+.2f} nats)" if nats < 0 else "nowhere"
    return (
        f'<tr><td>{html.escape(one.name)}</td><td class="number">{one.perplexity:,.2f}</td>'
        f'<td class="number">{one.perplexity / whole - 1:+.1%}</td><td>{missed}</td></tr>'
    )
