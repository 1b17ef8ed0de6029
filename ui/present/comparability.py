"""Which perplexities compare: they are per token, so those of one tokenizer, in blocks of one size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ui.present.text.formatting import pluralize

RULE = "Perplexity is per token: only numbers of the same tokenizer and the same block size compare."


class TokenMeasure(NamedTuple):
    """What a perplexity depends on beside the model and the text."""

    tokenizer_sha256: str
    block_size: int


def odd_measures(measures: Mapping[str, TokenMeasure]) -> dict[str, str]:
    """By name, in what a number differs from most of the others; nothing of those that compare with most."""
    usual = _usual(measures.values())
    return {name: _difference(one, usual) for name, one in measures.items() if usual is not None and one != usual}


def comparability_words(measures: Mapping[str, TokenMeasure], where: str = "the others are marked") -> str:
    """A note where not all numbers compare, with what most are of and where to see it; empty where they do."""
    usual, odd = _usual(measures.values()), odd_measures(measures)
    if usual is None or not odd:
        return ""
    most = f"{len(measures) - len(odd)} of {pluralize(len(measures), 'number')}"
    return f"{RULE} Here {most} are in blocks of {usual.block_size:,} tokens of one tokenizer; {where}."


def _usual(measures: Collection[TokenMeasure]) -> TokenMeasure | None:
    return Counter(measures).most_common(1)[0][0] if measures else None


def _difference(one: TokenMeasure, usual: TokenMeasure) -> str:
    parts = [
        *(["another tokenizer"] if one.tokenizer_sha256 != usual.tokenizer_sha256 else []),
        *([f"blocks of {one.block_size:,}"] if one.block_size != usual.block_size else []),
    ]
    return ", ".join(parts)
