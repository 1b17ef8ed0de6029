"""Held-out text to measure on: blocks spread evenly over a split, so that few tokens still come from many documents.

The first tokens of a split would be those of one or two long documents, and say more about these than about the domain.
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
    """Blocks of a split: block n predicts the tokens that follow each of the T from `starts_N[n]` on.

    Blocks do not overlap and are independent; only the last may be shorter, at the end of the split.
    """

    tokens: Tokens
    block_size: int
    starts_N: NDArray[np.int64]

    @classmethod
    def of(cls, tokens: Tokens, block_size: int, max_tokens: int | None = None) -> EvalSample:
        """The whole split, or as many whole blocks as `max_tokens` allows, evenly spread; or part of the first."""
        total = max(len(tokens) - 1, 0)
        if max_tokens is None or total <= max_tokens:
            return cls(tokens, block_size, np.arange(0, total, block_size))
        if max_tokens < block_size:
            return cls.of(Tokens(tokens.array[: max_tokens + 1], tokens.starts), block_size)
        return cls.of_blocks(tokens, block_size, max_tokens // block_size)

    @classmethod
    def of_blocks(cls, tokens: Tokens, block_size: int, num_blocks: int) -> EvalSample:
        """So many whole blocks, evenly spread; all there are, if they are fewer."""
        return cls(tokens, block_size, evenly_spaced(tokens.num_blocks(block_size), num_blocks) * block_size)

    @property
    def num_tokens(self) -> int:
        """How many tokens are predicted."""
        if not len(self.starts_N):
            return 0
        last = min(self.block_size, len(self.tokens) - 1 - int(self.starts_N[-1]))
        return (len(self.starts_N) - 1) * self.block_size + last

    @property
    def documents_N(self) -> NDArray[np.int32]:
        """The number, within the split, of the document in which each block begins."""
        found = np.searchsorted(self.tokens.starts, self.starts_N, side="right") - 1
        return found.astype(np.int32)

    @property
    def sha256(self) -> str:
        """What was chosen, and from what: the same for the same tokens at the same places."""
        digest = hashlib.sha256(self.starts_N.astype("<i8").tobytes())
        for inputs, targets in self.batches(64):
            digest.update(inputs.astype("<i8").tobytes() + targets.astype("<i8").tobytes())
        return digest.hexdigest()

    def block(self, n: int) -> tuple[Ids, Ids]:
        """Inputs and targets [T] of a block: targets are the tokens one further."""
        start = int(self.starts_N[n])
        window = np.asarray(self.tokens.array[start : start + self.block_size + 1], dtype=np.int64)
        return window[:-1], window[1:]

    def batches(self, size: int) -> Iterator[tuple[Ids, Ids]]:
        """Inputs and targets [N, T] of at most `size` blocks of one length, in order."""
        whole = self.num_tokens // self.block_size
        for first in range(0, whole, size):
            pairs = np.stack([np.stack(self.block(n)) for n in range(first, min(first + size, whole))])
            yield pairs[:, 0], pairs[:, 1]
        if whole < len(self.starts_N):
            inputs, targets = self.block(whole)
            yield inputs[None], targets[None]


def eval_sample(ids: NDArray[np.integer], block_size: int) -> EvalSample:
    """A text as a whole, of one document."""
    return EvalSample.of(Tokens(ids, np.zeros(1, dtype=np.int64)), block_size)


def evenly_spaced(available: int, wanted: int) -> NDArray[np.int64]:
    """`wanted` of so many places, evenly spread from the first on; all of them, if they are fewer."""
    count = min(available, wanted)
    return np.arange(count, dtype=np.int64) * available // max(count, 1)
