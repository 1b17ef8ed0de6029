"""Distances of a growing text to each cluster centre (C-BTM Eq. 3), live or stored for evaluation sets.

The distance before a token is that of its document so far, from the document's first token on, as of a text that is
generated: a block in the middle of a document knows what stands before it, although the experts do not read that.
Stored distances lie next to the scores of the same tokens: `further.npy`, float32 [K, tokens], memory-mapped, the
distance beyond the nearest centre's; `nearest.npy`, float32 [tokens], the distance of the nearest centre; `known.npy`,
int32 [tokens], the number of tokens of the document so far; `distances.json`. Weights depend on differences, which
float32 represents well in this form.
Shapes: K clusters, N blocks, T positions, X tokens, D dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.clusters.centroids import squared_distances
from engine.errors import ScoresError
from engine.events import Progress
from engine.files import reading_own

if TYPE_CHECKING:
    from engine.clusters.artifact import FittedClustering
    from engine.text.blocks import EvalSample, Tokens
    from engine.text.tokenizer import TextStream, Tokenizer

_FURTHER, _NEAREST, _KNOWN, _CARD = "further.npy", "nearest.npy", "known.npy", "distances.json"


class GrowingContext:
    """The text that a gate measures, token by token; a BOS token begins a new text."""

    def __init__(self, clustering: FittedClustering, tokenizer: Tokenizer) -> None:
        self._clustering, self._tokenizer = clustering, tokenizer
        self._begin()

    def _begin(self) -> None:
        self.num_tokens = 0
        self._text: TextStream = self._tokenizer.stream()
        self._state: Any = self._clustering.embedder.start()

    def read(self, token: int) -> None:
        """Adds a token."""
        if token == self._tokenizer.bos_id:
            self._begin()
            return
        self.num_tokens += 1
        if piece := self._text.push(token):
            self._state = self._clustering.embedder.extend(self._state, piece)

    def read_all(self, tokens: Sequence[int]) -> None:
        """Adds tokens as if they were read one by one, in less time."""
        pieces: list[str] = []
        for token in tokens:
            if token == self._tokenizer.bos_id:
                self._begin()
                pieces = []
            else:
                self.num_tokens += 1
                pieces.append(self._text.push(token))
        self._state = self._clustering.embedder.extend(self._state, "".join(pieces))

    def vector(self) -> NDArray[np.float64]:
        """The vector [D] of the text so far."""
        vector_D: NDArray[np.float64] = self._clustering.embedder.vector(self._state)
        return vector_D

    def squared_distances(self) -> Tensor:
        """The squared distances [K] to all centres, float64."""
        return torch.from_numpy(squared_distances(self.vector()[None], self._clustering.clusters.centres_KD)[0])


@dataclass(frozen=True)
class Distances:
    """Squared distances before each token of a scored text: the nearest centre's, and the excess of all centres.

    `known_X` counts the tokens of the text so far.
    """

    further_KX: Tensor
    nearest_X: Tensor
    known_X: Tensor
    block_size: int

    def beside_nearest(self, cluster: int) -> Distances:
        """The distances to one cluster, and in each place to the nearest of all."""
        own_X = self.further_KX[cluster]
        return replace(self, further_KX=torch.stack([own_X, torch.zeros_like(own_X)]))

    def frozen(self, after: int | None) -> Distances:
        """The distances, with those of every text fixed after `after` tokens; unchanged for None.

        Of a text that is longer than that where its block begins, they are those at the block's first token.
        """
        if after is None:
            return self
        places_X = torch.arange(len(self.known_X))
        then_X = torch.maximum(places_X - (self.known_X - after).clamp(min=0), places_X - self._since_X())
        return replace(self, further_KX=self.further_KX[:, then_X], nearest_X=self.nearest_X[then_X])

    def _since_X(self) -> Tensor:
        """The number of tokens of its block and document before each token."""
        places_X = torch.arange(len(self.known_X))
        is_first_X = places_X % self.block_size == 0
        is_first_X[1:] |= self.known_X[1:] != self.known_X[:-1] + 1
        return places_X - torch.where(is_first_X, places_X, 0).cummax(0).values

    def of(self, clusters_E: Tensor, blocks: range, block_size: int) -> Tensor:
        """The squared distances [E, N, T] of these blocks to each expert's cluster, float64; 0 after the end.

        Raises ScoresError when block size or number of tokens do not match.
        """
        available, start, stop = len(self.known_X), blocks.start * block_size, blocks.stop * block_size
        if block_size != self.block_size or stop - block_size >= available:
            raise ScoresError(
                f"The stored distances cover {available} tokens in blocks of {self.block_size}, and the scores at "
                f"least {stop - block_size + 1} tokens in blocks of {block_size}.",
                "Evaluate the mixture again.",
            )
        squared_EX = self.further_KX[:, start:stop][clusters_E].double() + self.nearest_X[start:stop].double()
        padded_EX = torch.nn.functional.pad(squared_EX, (0, stop - start - squared_EX.shape[1]))
        return padded_EX.view(len(clusters_E), len(blocks), block_size)


def measure_distances(
    clustering: FittedClustering, tokenizer: Tokenizer, text: EvalSample, folder: Path
) -> Iterator[Progress]:
    """Writes the squared distances before every token of a text into a folder.

    Raises ScoresError when there is nothing to predict.
    """
    total = text.num_tokens
    if total < 1:
        raise ScoresError("The text has fewer than 2 tokens.", "Import more text for this domain.")
    shape = (clustering.clusters.num_clusters, total)
    further_KX = np.lib.format.open_memmap(folder / _FURTHER, mode="w+", dtype=np.float32, shape=shape)
    nearest_X, known_X = np.zeros(total, dtype=np.float32), np.zeros(total, dtype=np.int32)
    stop, reader = 0, _DistanceReader(clustering, tokenizer, text.tokens)
    for number in range(len(text.starts_N)):
        begin, (_, targets) = int(text.starts_N[number]), text.block(number)
        start, stop = stop, stop + len(targets)
        vectors_TD, known_X[start:stop] = reader.read(begin, text.tokens.array[begin : begin + len(targets)])
        squared_TK = squared_distances(vectors_TD, clustering.clusters.centres_KD)
        nearest_X[start:stop] = squared_TK.min(1)
        further_KX[:, start:stop] = (squared_TK - squared_TK.min(1, keepdims=True)).T
        yield Progress(stop, total, "tokens", "measuring the distance to each cluster")
    further_KX.flush()
    np.save(folder / _NEAREST, nearest_X)
    np.save(folder / _KNOWN, known_X)
    card = {"block_size": text.block_size, "num_tokens": total, "text_sha256": text.sha256}
    (folder / _CARD).write_text(json.dumps(card), encoding="utf-8")


class _DistanceReader:
    """Follows the documents of a split, block by block in the order of the text."""

    def __init__(self, clustering: FittedClustering, tokenizer: Tokenizer, tokens: Tokens) -> None:
        self._clustering, self._tokenizer, self._tokens = clustering, tokenizer, tokens
        self._context = GrowingContext(clustering, tokenizer)
        self._read_to = 0  # the position after the last token that was read
        self._starts = set(tokens.starts.tolist())

    def read(self, start: int, block_T: NDArray[Any]) -> tuple[NDArray[np.float64], list[int]]:
        """The vectors [T, D] after each token of a block, and the number of tokens of its document so far."""
        self._catch_up(start)
        vectors_TD = np.empty((len(block_T), self._clustering.embedder.dimension))
        known = []
        for position, token in enumerate(block_T.tolist()):
            self._add(start + position, token)
            vectors_TD[position] = self._context.vector()
            known.append(self._context.num_tokens)
        return vectors_TD, known

    def _catch_up(self, start: int) -> None:
        """Reads what the document in which a block begins has before the block, and was not read."""
        first = int(self._tokens.starts[np.searchsorted(self._tokens.starts, start, side="right") - 1])
        if first >= self._read_to:
            self._context = GrowingContext(self._clustering, self._tokenizer)
        self._context.read_all(self._tokens.array[max(first, self._read_to) : start].tolist())
        self._read_to = start

    def _add(self, position: int, token: int) -> None:
        if position in self._starts:
            self._context = GrowingContext(self._clustering, self._tokenizer)
        self._context.read(token)
        self._read_to = position + 1


def require_same_text(distances: Path, scores: Path) -> None:
    """Raises ScoresError unless distances and scores are of the same text."""
    measured, scored = (
        json.loads((folder / name).read_text(encoding="utf-8")).get("text_sha256")
        for folder, name in ((distances, _CARD), (scores, "scores.json"))
    )
    if measured != scored:
        raise ScoresError(
            "The stored distances and scores are of different texts.",
            "Evaluate the mixture again, with another number of tokens.",
        )


def open_distances(folder: Path) -> Distances:
    """Opens stored distances, memory-mapped until used."""
    with reading_own(f"The distances in {folder}", "Evaluate the mixture again."):
        card = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        further_KX = np.load(folder / _FURTHER, mmap_mode="c", allow_pickle=False)  # c: torch wants to be able to write
        nearest_X, known_X = (torch.from_numpy(np.load(folder / one, allow_pickle=False)) for one in (_NEAREST, _KNOWN))
        return Distances(torch.from_numpy(further_KX), nearest_X, known_X, int(card["block_size"]))
