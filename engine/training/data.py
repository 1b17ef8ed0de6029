"""Which block of text comes when. Everything follows from the seed and the step, so a resumed training needs no memory.

Shapes: B rows, T positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import TrainingError
from engine.models.demix import Rows
from engine.text.blocks import Tokens


@dataclass(frozen=True)
class DomainText:
    """The text of one domain and the expert it trains."""

    name: str
    expert: str
    train: Tokens
    dev: Tokens


@dataclass(frozen=True)
class Batch:
    """Inputs and targets [B, T], the experts of the rows, and the domains in order with their number of rows."""

    inputs_BT: Tensor
    targets_BT: Tensor
    rows: Rows
    domains: tuple[str, ...]


@dataclass
class BlockSampler:
    """Walks each domain's blocks in a new order every epoch; equal numbers for every domain (DEMix §4.1)."""

    texts: Sequence[DomainText]
    block_size: int
    sequences_per_domain: int
    seed: int
    _order: dict[tuple[str, int], NDArray[np.int64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for text in self.texts:
            for split, tokens in (("training", text.train), ("held-out", text.dev)):
                if tokens.num_blocks(self.block_size) < 1:
                    raise TrainingError(
                        f"The {split} text of domain “{text.name}” must hold at least one block of "
                        f"{self.block_size} tokens, but holds {len(tokens)} tokens instead.",
                        "Import more text for it, or choose a smaller block size.",
                    )
        self.texts = sorted(self.texts, key=lambda text: text.expert)  # stable: rows of one expert lie together

    def batch(self, number: int) -> Batch:
        """The batch with this number, counted from 0 over the whole training."""
        blocks = [
            text.train.block(self._index(text, number * self.sequences_per_domain + i), self.block_size)
            for text in self.texts
            for i in range(self.sequences_per_domain)
        ]
        return _as_batch(blocks, self.texts, self.sequences_per_domain)

    def held_out(self, text: DomainText, num_blocks: int) -> Batch:
        """The first held-out blocks of one domain."""
        count = min(num_blocks, text.dev.num_blocks(self.block_size))
        return _as_batch([text.dev.block(i, self.block_size) for i in range(count)], [text], count)

    def _index(self, text: DomainText, draw: int) -> int:
        num_blocks = text.train.num_blocks(self.block_size)
        epoch, position = divmod(draw, num_blocks)
        return int(self._epoch_order(text, epoch, num_blocks)[position])

    def _epoch_order(self, text: DomainText, epoch: int, num_blocks: int) -> NDArray[np.int64]:
        key = (text.name, epoch)
        if key not in self._order:
            for old in [name for name in self._order if name[0] == text.name]:
                if old[1] < epoch - 1:
                    del self._order[old]
            label = int.from_bytes(hashlib.sha256(text.name.encode()).digest()[:8])
            self._order[key] = np.random.default_rng([self.seed, label, epoch]).permutation(num_blocks)
        return self._order[key]


def _as_batch(
    blocks: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]], texts: Sequence[DomainText], each: int
) -> Batch:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text.expert] = counts.get(text.expert, 0) + each
    return Batch(
        inputs_BT=torch.from_numpy(np.stack([inputs for inputs, _ in blocks])),
        targets_BT=torch.from_numpy(np.stack([targets for _, targets in blocks])),
        rows=Rows(tuple(counts), tuple(counts.values())),
        domains=tuple(text.name for text in texts),
    )
