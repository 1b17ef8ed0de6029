"""Posteriors of whole domains in words: what was estimated how, and when it settled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.present.text.formatting import pluralize

_ESTIMATES = {
    "updating": "by the updating method (newest block {newest_weight:.0%})",
    "mean": "as the mean of the blocks' posteriors",
}
_EVIDENCE = {"prefix": "the whole prefix (paper)", "last_token": "the last token (released code)"}


def posterior_title(found: Mapping[str, Any]) -> str:
    """`Posterior after 10 to 31 blocks of dev text, by the updating method …, evidence: the whole prefix (paper)`."""
    how = _ESTIMATES[found["estimate"]].format(**found)
    used = sorted(row["num_blocks"] for row in found["domains"]) or [found["num_blocks"]]
    blocks = pluralize(used[-1], "block")
    blocks = blocks if used[0] == used[-1] else f"{used[0]:,} to {blocks}"
    return f"Posterior after {blocks} of {found['split']} text, {how}, evidence: {_EVIDENCE[found['evidence']]}"


def stable_words(row: Mapping[str, Any]) -> str:
    """From which block on no share is more than 0.05 from where it ends; not where that is in the last tenth."""
    if row["stable_after"] is None:
        return f"not within {pluralize(row['num_blocks'], 'block')}"
    return f"after {row['stable_after']} of {pluralize(row['num_blocks'], 'block')}"


def short_words(found: Mapping[str, Any]) -> str:
    """Which domains have fewer blocks than asked for; empty where none has."""
    short = [
        f"{row['domain']} ({row['num_blocks']})" for row in found["domains"] if row["num_blocks"] < found["num_blocks"]
    ]
    told = [
        f"Fewer blocks than asked for, since no more is scored: {', '.join(short)}." if short else "",
        f"Less than one whole block: {', '.join(found['too_short'])}." if found["too_short"] else "",
    ]
    return " ".join(filter(None, told))
