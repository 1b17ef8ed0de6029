"""Words as tf-idf counts them: runs of at least two letters, digits or underscores, in lower case, without stop words.

Every word is decided by itself, from its own letters alone. So a growing text needs only its last run looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from engine.clusters.config import Numbers

NUMBER = "#NUMBER"  # no text can spell it: a word has no such sign
_RUN = re.compile(r"\w+")
_SIGN = re.compile(r"\w")


def words(text: str, numbers: Numbers) -> Iterator[str]:
    """The words of a text, in order."""
    for run in _RUN.findall(text):
        word = word_of(run, numbers)
        if word:
            yield word


def word_of(run: str, numbers: Numbers) -> str:
    """The word that a whole run counts as; empty for one that does not count."""
    if len(run) < 2:
        return ""
    if run[0].isdigit():
        return NUMBER if numbers == "token" else ""
    word = run.lower()
    return "" if word in ENGLISH_STOP_WORDS else word


def split_open(text: str) -> tuple[str, str]:
    """A text in two: what can no longer change, and the run at its end that the next piece may go on with."""
    start = len(text)
    while start and _SIGN.match(text, start - 1):
        start -= 1
    return text[:start], text[start:]
