"""Splits text into words for tf-idf: runs of at least two letters, digits or underscores, lower case, no stop words.

A word depends only on its own letters, so for a growing text only the last run is processed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from engine.clusters.config import Numbers

NUMBER = "#NUMBER"  # no word of a text contains #
_RUN = re.compile(r"\w+")
_WORD_CHARACTER = re.compile(r"\w")
_LONGEST = 40  # letters of a word; a longer run is many words, or none
# Thai to Tibetan, Burmese, Khmer, kana and Chinese characters: scripts that write no blanks between words.
_SCRIPTS = r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_UNSPACED = re.compile(rf"(?:(?=\w)[{_SCRIPTS}])+|\w{{{_LONGEST + 1},}}")


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


class UnspacedText:
    """Counts the letters of texts that pass through it, and those in text without blanks between words."""

    def __init__(self) -> None:
        self._num_letters = self._num_unspaced = 0

    def count(self, texts: Iterable[str]) -> Iterator[str]:
        """Passes the texts on."""
        for text in texts:
            self._num_letters += sum(map(len, _RUN.findall(text)))
            self._num_unspaced += sum(map(len, _UNSPACED.findall(text)))
            yield text

    @property
    def share(self) -> float:
        """The share of the letters that are in such text."""
        return self._num_unspaced / max(1, self._num_letters)
