"""What a text would be without an expert, as a diff of words. All text is escaped."""

from __future__ import annotations

import html
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ui.playground.view import Answer

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


def diff_html(before: Answer, after: Answer, letter: str) -> str:
    """The words of one answer against those of another, which stands in the pane of this letter."""
    if before.generated == after.generated:
        return f'<p class="same">The same text as {letter}.</p>'
    pairs = zip(before.token_ids, after.token_ids, strict=False)
    longest = min(len(before.token_ids), len(after.token_ids))
    same = next((place for place, (old, new) in enumerate(pairs) if old != new), longest)
    sentence = f"The first {same} tokens are those of {letter}. Then:" if same else f"Differs from {letter} at once:"
    changes = words_diff("".join(before.texts[same:]), "".join(after.texts[same:]))
    return f'<p class="same">{sentence}</p>{changes}'


def words_diff(before: str, after: str) -> str:
    """HTML of the words that went (`del`), came (`ins`) and stayed."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    parts = []
    for what, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, came = html.escape("".join(old[start:end])), html.escape("".join(new[first:last]))
        if what == "equal":
            parts.append(came)
            continue
        parts += [f"<del>{gone}</del>"] if gone else []
        parts += [f"<ins>{came}</ins>"] if came else []
    return "".join(parts)
