"""Splits text into words for tf-idf: runs of at least two letters, digits or underscores, lower case, no stop words.

A word depends only on its own letters, so for a growing text only the last run is processed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from engine.clusters.config import Numbers

NUMBER = "#NUMBER"  # no word of a text contains #
_RUN = re.compile(r"\w+")
_WORD_CHARACTER = re.compile(r"\w")


def words(text: str, numbers: Numbers) -> Iterator[str]:
    """The words of a text, in order."""
    for run in _RUN.findall(text):
        word = word_of(run, numbers)
        if word:
            yield word


def word_of(run: str, numbers: Numbers) -> str:
    """The word of a run; empty for a run that does not count."""
    if len(run) < 2:
        return ""
    if run[0].isdigit():
        return NUMBER if numbers == "token" else ""
    word = run.lower()
    return "" if word in _stop_words() else word


@cache
def _stop_words() -> frozenset[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # imported late: a second, for every job with a gate

    return frozenset(ENGLISH_STOP_WORDS)


def split_open(text: str) -> tuple[str, str]:
    """Splits a text into its complete words and the last run, which the next piece may continue."""
    start = len(text)
    while start and _WORD_CHARACTER.match(text, start - 1):
        start -= 1
    return text[:start], text[start:]
