"""Held-out text to evaluate on: blocks spread evenly over a split, so that few tokens still cover many documents.

The first tokens of a split would cover one or two long documents, which do not represent the domain.
Shapes: N blocks, T positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.text.blocks import Tokens

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EvalSample:
    """Blocks of a split: block n starts at `starts_N[n]` and predicts the next token at each of its T positions.


    Blocks do not overlap and are independent; only the last may be shorter, at the end of the split.
    """

    tokens: Tokens
    block_size: int
    starts_N: NDArray[np.int64]

    @classmethod
    def of(cls, tokens: Tokens, block_size: int, max_tokens: int | None = None) -> EvalSample:
        """The full split, or as many full blocks as `max_tokens` allows, evenly spaced; at least part of the first."""
        total = max(len(tokens) - 1, 0)
        if max_tokens is None or total <= max_tokens:
            return cls(tokens, block_size, np.arange(0, total, block_size))
        if max_tokens < block_size:
            return cls.of(tokens.first(max_tokens + 1), block_size)
        return cls.of_blocks(tokens, block_size, max_tokens // block_size)

    @classmethod
    def of_blocks(cls, tokens: Tokens, block_size: int, num_blocks: int) -> EvalSample:
        """At most `num_blocks` full blocks, evenly spaced."""
        return cls(tokens, block_size, evenly_spaced(tokens.num_blocks(block_size), num_blocks) * block_size)

    @property
    def num_tokens(self) -> int:
        """The number of predicted tokens."""
        if not len(self.starts_N):
            return 0
        last = min(self.block_size, len(self.tokens) - 1 - int(self.starts_N[-1]))
        return (len(self.starts_N) - 1) * self.block_size + last

    @property
    def documents_N(self) -> NDArray[np.int32]:
        """The index, within the split, of the document in which each block begins."""
        documents_N = np.searchsorted(self.tokens.starts, self.starts_N, side="right") - 1
        order = self.tokens.documents
        return (documents_N if order is None else order[documents_N]).astype(np.int32)

    @property
    def marks_X(self) -> NDArray[np.uint8] | None:
        """The mark of every predicted token, in order; None when all count."""
        marks = self.tokens.marks
        if marks is None:
            return None
        stops_N = self.starts_N + self.block_size + 1
        pieces = zip(self.starts_N.tolist(), stops_N.tolist(), strict=True)
        return np.concatenate([np.zeros(0, np.uint8), *(marks[start + 1 : stop] for start, stop in pieces)])

    @property
    def sha256(self) -> str:
        """The hash of the sampled positions and tokens, and of the marks of conversations."""
        digest = hashlib.sha256(self.starts_N.astype("<i8").tobytes())
        for inputs, targets in self.batches(64):
            digest.update(inputs.astype("<i8").tobytes() + targets.astype("<i8").tobytes())
        if (marks_X := self.marks_X) is not None:
            digest.update(marks_X.tobytes())
        return digest.hexdigest()

    def block(self, n: int) -> tuple[Ids, Ids]:
        """Inputs and targets [T] of a block: targets are shifted by one token."""
        start = int(self.starts_N[n])
        window = np.asarray(self.tokens.array[start : start + self.block_size + 1], dtype=np.int64)
        return window[:-1], window[1:]

    def batches(self, size: int) -> Iterator[tuple[Ids, Ids]]:
        """Inputs and targets [N, T] of at most `size` blocks of equal length, in order."""
        num_full = self.num_tokens // self.block_size
        for first in range(0, num_full, size):
            pairs = np.stack([np.stack(self.block(n)) for n in range(first, min(first + size, num_full))])
            yield pairs[:, 0], pairs[:, 1]
        if num_full < len(self.starts_N):
            inputs, targets = self.block(num_full)
            yield inputs[None], targets[None]


def eval_sample(ids: NDArray[np.integer], block_size: int) -> EvalSample:
    """A sample that is one full text."""
    return EvalSample.of(Tokens(ids, np.zeros(1, dtype=np.int64)), block_size)


def evenly_spaced(available: int, wanted: int) -> NDArray[np.int64]:
    """`wanted` of `available` positions, evenly spaced from the first on; all of them, if they are fewer."""
    count = min(available, wanted)
    return np.arange(count, dtype=np.int64) * available // max(count, 1)
