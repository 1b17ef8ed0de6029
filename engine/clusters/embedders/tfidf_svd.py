"""Embeds documents by their words: tf-idf, then a truncated SVD, then scaling (C-BTM §3.1).

A document's vector is linear in its weighted counts, up to their length. The state of a growing text is the unscaled
sum, to which each word adds one row of the components.

Shapes: N documents, W words, D dimensions. Arithmetic in float64 over parameters kept in float32.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from engine.clusters.config import NUMBER, Numbers, TfidfConfig, is_term
from engine.clusters.embedders.base import Embedder, Embedding, Vectors
from engine.errors import DamagedFileError, EngineError
from engine.events import Progress
from engine.files import reading_own
from engine.long_calls import run_long_call

BY_HIDDEN_STATES = "Let a seed model read the documents: --embedder hidden_states --seed-model NAME."
REPORT_EVERY = 1000  # documents
NOTHING = 1e-6  # of the length 1 of a tf-idf row: less variance counts as none
POWER_ITERATIONS = 5  # of the randomised SVD, as scikit-learn's TruncatedSVD does
SVD_SECONDS = 1.3e-7  # for each counted word of a document and dimension, on one core

Floats = NDArray[np.float32]
Row = NDArray[np.int32]  # pairs of a word's number and its count


@dataclass(frozen=True, slots=True)
class GrowingText:
    """Counts of complete words, their weighted sum [D], its squared length, and the last, possibly incomplete word."""

    counts: Mapping[int, int]
    sum_D: Vectors
    squared_length: float
    tail: str = ""


class TfidfEmbedder(Embedder[GrowingText]):
    """Embeds texts by the idf weights and SVD components of their words."""

    kind = "tfidf"

    def __init__(self, config: TfidfConfig, vocabulary: Sequence[str], tensors: Mapping[str, Floats]) -> None:
        """`tensors`: idf_W, components_WD, mean_D and deviation_D, all float32."""
        self.config = config
        self.vocabulary = list(vocabulary)
        self.tensors = dict(tensors)
        self._number = {word: number for number, word in enumerate(self.vocabulary)}
        self._idf_W = tensors["idf_W"].astype(np.float64)
        self._components_WD = tensors["components_WD"]
        self._mean_D = tensors["mean_D"].astype(np.float64)
        self._deviation_D = tensors["deviation_D"].astype(np.float64)

    @property
    def dimension(self) -> int:
        return int(self._components_WD.shape[1])

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256(json.dumps([self.kind, asdict(self.config), self.vocabulary]).encode())
        for name in sorted(self.tensors):
            digest.update(name.encode() + np.ascontiguousarray(self.tensors[name]).tobytes())
        return digest.hexdigest()

    def embed(self, texts: Sequence[str]) -> Embedding:
        rows = [_count(text, self.config.numbers, self._number.get) for text in texts]
        rows_NW = _weigh(_matrix(rows, len(self.vocabulary)), self._idf_W)
        is_blank_N = np.array([not len(row) for row in rows], dtype=np.bool_)
        return Embedding(self._scale(_project(rows_NW, self._components_WD)), is_blank_N)

    def start(self) -> GrowingText:
        return GrowingText({}, np.zeros(self.dimension), 0.0)

    def extend(self, state: GrowingText, piece: str) -> GrowingText:
        ended, tail = split_open(state.tail + piece)
        return self._add_counts(replace(state, tail=tail), words(ended, self.config.numbers))

    def vector(self, state: GrowingText) -> Vectors:
        state = self._add_counts(state, [word_of(state.tail, self.config.numbers)])
        length = np.sqrt(state.squared_length)
        vector_D: Vectors = self._scale(state.sum_D[None] / length if length else state.sum_D[None])[0]
        return vector_D

    def _add_counts(self, state: GrowingText, added: Iterable[str]) -> GrowingText:
        """The state with more words, whose counts are copied once; unknown words change nothing."""
        numbers = [number for word in added if (number := self._number.get(word)) is not None]
        if not numbers:
            return state
        counts, sum_D, squared_length = dict(state.counts), state.sum_D, state.squared_length
        for number in numbers:
            count, weight = counts.get(number, 0), self._idf_W[number]
            counts[number] = count + 1
            sum_D = sum_D + weight * self._components_WD[number]
            squared_length += weight**2 * (2 * count + 1)
        return replace(state, counts=counts, sum_D=sum_D, squared_length=squared_length)

    def _scale(self, vectors_ND: Vectors) -> Vectors:
        if self.config.scaling == "standardise":
            return (vectors_ND - self._mean_D) / self._deviation_D
        lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
        return vectors_ND / np.where(lengths_N1 > 0, lengths_N1, 1)

    def word_scores(self, vectors_ND: NDArray[Any]) -> Floats:
        """The score of each word [N, W] for a vector: the inverse of scaling and SVD."""
        if self.config.scaling == "standardise":
            vectors_ND = vectors_ND * self._deviation_D + self._mean_D
        scores_NW: Floats = vectors_ND.astype(np.float32) @ self._components_WD.T
        return scores_NW

    def save(self, folder: Path) -> None:
        card = {"kind": self.kind, "config": asdict(self.config), "sha256": self.sha256}
        (folder / "embedder.json").write_text(json.dumps(card, indent=1), encoding="utf-8")
        (folder / "words.json").write_text(json.dumps(self.vocabulary), encoding="utf-8")
        save_file(self.tensors, folder / "embedder.safetensors")


def load_tfidf(folder: Path) -> TfidfEmbedder:
    """Loads the embedder; raises DamagedFileError when it is not bit-identical to the saved one."""
    with reading_own(f"The embedder in {folder}", "Cluster again."):
        card = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))
        vocabulary = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        embedder = TfidfEmbedder(TfidfConfig(**card["config"]), vocabulary, load_file(folder / "embedder.safetensors"))
        intact = embedder.sha256 == card["sha256"]
    if not intact:
        raise DamagedFileError(f"The embedder in {folder} is not the one that was saved.", "Cluster again.")
    return embedder


def fit_tfidf(
    texts: Iterable[str], config: TfidfConfig, *, needs_words: bool = True
) -> Iterator[Progress | TfidfEmbedder]:
    """Yields progress while the sample is read, then a TfidfEmbedder; the order of the texts affects only rounding.

    Raises EngineError for a sample without a word; unless it `needs_words`, the embedder then knows none.
    """
    numbers: dict[str, int] = {}
    rows: list[Row] = []
    for text in texts:
        rows.append(_count(text, config.numbers, lambda word: numbers.setdefault(word, len(numbers))))
        if len(rows) % REPORT_EVERY == 0:
            yield Progress(len(rows), None, "documents", "counting words", phase="words")
    if not numbers and needs_words:
        raise EngineError(
            f"None of the {len(rows)} documents of the sample has a word that tf-idf counts: they consist of stop "
            "words, single letters, signs or numbers.",
            BY_HIDDEN_STATES,
        )
    if not numbers:
        shapes = {"idf_W": (0,), "components_WD": (0, 1), "mean_D": (1,), "deviation_D": (1,)}
        yield TfidfEmbedder(config, [], {name: np.ones(shape, dtype=np.float32) for name, shape in shapes.items()})
        return
    counts_NW = _matrix(rows, len(numbers))
    totals_W = np.asarray(counts_NW.sum(0)).ravel()
    most_frequent = heapq.nsmallest(config.max_words, numbers, key=lambda word: (-totals_W[numbers[word]], word))
    vocabulary = sorted(most_frequent)
    counts_NW = counts_NW[:, [numbers[word] for word in vocabulary]]
    seconds = counts_NW.nnz * config.dimension * SVD_SECONDS
    yield (yield from run_long_call(lambda: _fit(vocabulary, counts_NW, config), seconds, "SVD of their words", "svd"))


def _fit(vocabulary: list[str], counts_NW: Any, config: TfidfConfig) -> TfidfEmbedder:
    from sklearn.utils.extmath import randomized_svd  # imported late: a second, for every job that only embeds

    num_documents = counts_NW.shape[0]
    idf_W = np.log((1 + num_documents) / (1 + np.bincount(counts_NW.indices, minlength=len(vocabulary)))) + 1
    rows_NW = _weigh(counts_NW, idf_W)
    _, singular_D, components_DW = randomized_svd(
        rows_NW, min(config.dimension, *rows_NW.shape), n_iter=POWER_ITERATIONS, random_state=config.seed
    )
    components_WD = components_DW[singular_D > NOTHING * singular_D[0]].T.astype(np.float32, order="C")
    projected_ND = _project(rows_NW, components_WD)
    deviation_D = projected_ND.std(0)
    tensors = {
        "idf_W": idf_W,
        "components_WD": components_WD,
        "mean_D": projected_ND.mean(0),
        "deviation_D": np.where(deviation_D > NOTHING, deviation_D, 1),
    }
    return TfidfEmbedder(config, vocabulary, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})


LONGEST_TERM = 30  # characters of a word that is shown


def top_terms(embedder: TfidfEmbedder, centres_KD: NDArray[Any], num_terms: int = 10) -> list[list[str]]:
    """The highest-scoring words of each centre, mapped back through scaling and SVD (§A.1), without placeholders."""
    terms = []
    for centre_D in centres_KD:
        scores_W = embedder.word_scores(centre_D[None])[0]
        ranked = (embedder.vocabulary[number] for number in np.argsort(-scores_W, kind="stable"))
        words = islice(filter(is_term, ranked), num_terms)
        terms.append([word if len(word) <= LONGEST_TERM else f"{word[: LONGEST_TERM - 1]}…" for word in words])
    return terms


def _count(text: str, numbers: Numbers, number_of: Callable[[str], int | None]) -> Row:
    """The counts of known words in a text, as pairs of index and count."""
    counts = Counter(words(text, numbers))
    pairs = [(number, count) for word, count in counts.items() if (number := number_of(word)) is not None]
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def _matrix(rows: Sequence[Row], num_words: int) -> Any:
    """Counts [N, W] as a sparse matrix."""
    pairs = np.concatenate([*rows, np.empty((0, 2), dtype=np.int32)])
    ends = np.cumsum([0, *(len(row) for row in rows)])
    return scipy.sparse.csr_array((pairs[:, 1].astype(np.float64), pairs[:, 0], ends), shape=(len(rows), num_words))


def _weigh(counts_NW: Any, idf_W: NDArray[Any]) -> Any:
    """tf-idf rows of length 1; a row without a word stays 0."""
    rows_NW = counts_NW.copy()
    rows_NW.data *= idf_W[rows_NW.indices]
    lengths_N = np.sqrt(rows_NW.power(2).sum(1))
    rows_NW.data /= np.repeat(lengths_N, np.diff(rows_NW.indptr))
    return rows_NW


def _project(rows_NW: Any, components_WD: Floats) -> Vectors:
    """The rows projected on the components; only words that occur are converted to float64."""
    present = np.unique(rows_NW.indices)
    projected_ND: Vectors = rows_NW[:, present] @ components_WD[present].astype(np.float64)
    return projected_ND


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
    return "" if word in _english_stop_list() else word


@cache
def _english_stop_list() -> frozenset[str]:
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
