"""Samples blocks of text. The order depends only on seed and step, so a resumed training needs no stored state.

Shapes: B rows, N rows of all processes together, T positions.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import TrainingError
from engine.models.rows import Rows
from engine.text.blocks import Tokens, evenly_spaced


@dataclass(frozen=True)
class DomainText:
    """The text of one domain and the expert it trains."""

    name: str
    expert: str
    train: Tokens
    dev: Tokens


@dataclass(frozen=True)
class PackedDomain:
    """A domain whose text lies in a folder of packed tokens, and the expert it trains."""

    name: str
    expert: str
    folder: Path

    def open(self) -> DomainText:
        """The text, memory-mapped."""
        return DomainText(self.name, self.expert, Tokens.open(self.folder, "train"), Tokens.open(self.folder, "dev"))


def by_expert(texts: Sequence[DomainText]) -> list[DomainText]:
    """The texts with those of one expert next to each other, and experts in the order of their first text.

    The order of rows decides how sums round. It is the caller's: an expert's key may be random.
    """
    experts = list(dict.fromkeys(text.expert for text in texts))
    return sorted(texts, key=lambda text: experts.index(text.expert))


@dataclass(frozen=True)
class Batch:
    """This process's rows [B, T] of a batch, their experts, and their indices among all rows.

    `domains` has the domain of every row of the full batch, and `counted_NT` which of its targets are in the loss (of
    conversations only answers); None: all. `position_ids_BT` are the positions of tokens in their conversations, where
    these are kept apart; None: in the block.
    """

    inputs_BT: Tensor
    targets_BT: Tensor
    rows: Rows
    places: tuple[int, ...]
    domains: tuple[str, ...]
    counted_NT: Tensor | None = None
    position_ids_BT: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows of the full batch."""
        return len(self.domains)

    @property
    def counted_BT(self) -> Tensor:
        """A mask of the targets of this process's rows that count in the loss."""
        if self.counted_NT is None:
            return torch.ones_like(self.targets_BT, dtype=torch.bool)
        return self.counted_NT[list(self.places)]

    @property
    def share(self) -> float:
        """The share of the batch's rows that this process has."""
        return len(self.places) / self.num_rows

    def parts(self, number: int) -> Iterator[Batch]:
        """At most `number` batches of consecutive rows of this process, together all of them."""
        size = -(-len(self.places) // number)
        for start in range(0, len(self.places), size):
            yield self if number == 1 else self._rows_from(start, start + size)

    def _rows_from(self, start: int, end: int) -> Batch:
        experts = [key for key, count in zip(self.rows.keys, self.rows.num_rows, strict=True) for _ in range(count)]
        counts = Counter(experts[start:end])
        positions_BT = self.position_ids_BT
        return replace(
            self,
            inputs_BT=self.inputs_BT[start:end],
            targets_BT=self.targets_BT[start:end],
            rows=Rows(tuple(counts), tuple(counts.values())),
            places=self.places[start:end],
            position_ids_BT=None if positions_BT is None else positions_BT[start:end],
        )


def no_answers(domain: str, split: str = "held-out") -> TrainingError:
    """The error for conversations without a token that counts: each was cut, or is all question."""
    return TrainingError(
        f"The {split} blocks of domain “{domain}” hold no token of an answer.",
        "Choose a larger block size, or import conversations whose answers fit into a block with their questions.",
    )


_ALL = ""  # all domains' text in one row; no domain has this name


@dataclass
class BlockSampler:
    """Walks each domain's blocks in a new order every epoch; equal numbers for every domain (DEMix §4.1).

    Unless `balanced`, it walks the blocks of all domains together, in proportion to their text; all must train the same
    expert. `rows_of(expert, n)` returns which of an expert's n rows this process takes (default: all).
    """

    texts: Sequence[DomainText]
    block_size: int
    sequences_per_domain: int
    seed: int
    rows_of: Callable[[str, int], range] = lambda _, num_rows: range(num_rows)
    balanced: bool = True
    max_sequences: int | None = None  # of each domain's blocks only so many take part, evenly spread
    separate: bool = False  # conversations of one block are kept apart
    _order: dict[tuple[str, int], NDArray[np.int64]] = field(default_factory=dict)
    _blocks: dict[str, Sequence[int] | NDArray[np.int64]] = field(default_factory=dict)  # by domain

    def __post_init__(self) -> None:
        for text in self.texts:
            for split, tokens in (("training", text.train), ("held-out", text.dev)):
                if tokens.num_blocks(self.block_size) < 1:
                    raise TrainingError(
                        f"The {split} text of domain “{text.name}” has {len(tokens)} tokens, less than one block of "
                        f"{self.block_size}.",
                        "Import more text for it, or choose a smaller block size.",
                    )
                if not len(tokens.blocks_with_answers(self.block_size)):
                    raise no_answers(text.name, split)
        self.texts = by_expert(self.texts)

    @property
    def has_conversations(self) -> bool:
        """Whether any domain holds conversations."""
        return any(text.train.marks is not None for text in self.texts)

    @property
    def separates(self) -> bool:
        """Whether batches have positions that keep conversations apart."""
        return self.separate and self.has_conversations

    @property
    def rows(self) -> Rows:
        """The experts of a full batch, over all processes."""
        counts = Counter(text.expert for text in self.texts)
        return Rows(tuple(counts), tuple(count * self.sequences_per_domain for count in counts.values()))

    def batch(self, number: int) -> Batch:
        """The batch with this number, counted from 0 over the full training."""
        blocks = self._of_each(number) if self.balanced else self._of_all(number)
        return self._take([(text, text.train, index) for text, index in blocks])

    def held_out(self, text: DomainText, num_blocks: int) -> Batch:
        """Held-out blocks of one domain, evenly spaced over its documents."""
        sampled = text.dev.sampled_blocks(self.block_size)
        places = evenly_spaced(len(sampled), num_blocks)
        batch = self._take([(text, text.dev, int(sampled[i])) for i in places])
        if batch.counted_NT is not None and not batch.counted_NT.any():
            raise no_answers(text.name)
        return batch

    def _of_each(self, number: int) -> list[tuple[DomainText, int]]:
        """The blocks of a batch: as many of every domain."""
        each = self.sequences_per_domain
        return [
            (text, int(blocks[self._drawn(text.name, len(blocks), number * each + i)]))
            for text in self.texts
            for blocks in [self._blocks_of(text)]
            for i in range(each)
        ]

    def _of_all(self, number: int) -> list[tuple[DomainText, int]]:
        """The blocks of a batch of the same size, from the text of all domains in one row."""
        num_rows = self.sequences_per_domain * len(self.texts)
        blocks = [self._blocks_of(text) for text in self.texts]
        ends = list(accumulate(map(len, blocks)))
        places = [self._drawn(_ALL, ends[-1], number * num_rows + i) for i in range(num_rows)]
        located = [(place, bisect_right(ends, place)) for place in places]
        return [
            (self.texts[which], int(blocks[which][place - (ends[which - 1] if which else 0)]))
            for place, which in located
        ]

    def _blocks_of(self, text: DomainText) -> Sequence[int] | NDArray[np.int64]:
        """The training blocks of a domain that take part: those with a token to learn."""
        if text.name not in self._blocks:
            sampled = text.train.sampled_blocks(self.block_size)
            most = self.max_sequences
            some = None if most is None else evenly_spaced(len(sampled), most).tolist()
            self._blocks[text.name] = sampled if some is None else [int(sampled[place]) for place in some]
        return self._blocks[text.name]

    def _take(self, blocks: Sequence[tuple[DomainText, Tokens, int]]) -> Batch:
        """This process's rows of a batch given as domain, tokens and index of each block."""
        places, first = [], 0
        for expert, size in Counter(text.expert for text, _, _ in blocks).items():
            places += [first + i for i in self.rows_of(expert, size)]
            first += size
        mine = [blocks[place] for place in places]
        counts = Counter(text.expert for text, _, _ in mine)
        pairs = [tokens.block(i, self.block_size) for _, tokens, i in mine]
        both_B2T = torch.from_numpy(np.array(pairs, dtype=np.int64).reshape(-1, 2, self.block_size))
        rows = Rows(tuple(counts), tuple(counts.values()))
        domains = tuple(text.name for text, _, _ in blocks)
        counted_NT, position_ids_BT = self._counted(blocks), self._positions(mine)
        return Batch(both_B2T[:, 0], both_B2T[:, 1], rows, tuple(places), domains, counted_NT, position_ids_BT)

    def _counted(self, blocks: Sequence[tuple[DomainText, Tokens, int]]) -> Tensor | None:
        """Which targets [N, T] of all rows count, the same in every process; None when all tokens of all domains do."""
        if not self.has_conversations:
            return None
        return torch.from_numpy(np.stack([tokens.counted(i, self.block_size) for _, tokens, i in blocks]))

    def _positions(self, mine: Sequence[tuple[DomainText, Tokens, int]]) -> Tensor | None:
        """The positions [B, T] of tokens in their conversations; None unless these are kept apart."""
        if not self.separates:
            return None
        positions = [tokens.positions(i, self.block_size) for _, tokens, i in mine]
        return torch.from_numpy(np.array(positions, dtype=np.int64).reshape(-1, self.block_size))

    def _drawn(self, name: str, num_blocks: int, draw: int) -> int:
        """The block for this draw from the text of that name, counted over the full training."""
        epoch, position = divmod(draw, num_blocks)
        return int(self._epoch_order(name, epoch, num_blocks)[position])

    def _epoch_order(self, name: str, epoch: int, num_blocks: int) -> NDArray[np.int64]:
        key = (name, epoch)
        if key not in self._order:
            for old in [known for known in self._order if known[0] == name]:
                if old[1] < epoch - 1:
                    del self._order[old]
            label = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
            self._order[key] = np.random.default_rng([self.seed, label, epoch]).permutation(num_blocks)
        return self._order[key]


def num_counted_tokens(batches: Sequence[Batch]) -> int | None:
    """The number of tokens in the loss of one update, over all processes; None when all tokens are."""
    counted = [int(batch.counted_NT.sum()) for batch in batches if batch.counted_NT is not None]
    return sum(counted) if counted else None


def counted_rows(batches: Sequence[Batch], rows: Rows) -> Rows:
    """The unit of each expert's share of the loss: its tokens in the loss; its rows when all tokens count."""
    if num_counted_tokens(batches) is None:
        return rows
    counts_N = sum(batch.counted_NT.sum(1) for batch in batches if batch.counted_NT is not None)
    assert isinstance(counts_N, Tensor)
    sizes = [max(int(some.sum()), 1) for some in counts_N.split(list(rows.num_rows))]  # without one its gradient is 0
    return Rows(rows.keys, tuple(sizes))


class LossMeans:
    """The losses of all rows of an update or an evaluation, [A, N, T]."""

    def __init__(self, batches: Sequence[Batch], losses_ANT: Tensor) -> None:
        self._domains = [name for batch in batches for name in batch.domains]
        self._losses_ANT = losses_ANT
        counted = [batch.counted_NT for batch in batches if batch.counted_NT is not None]
        self._counted_ANT = torch.stack(counted).to(losses_ANT.device) if counted else None

    def mean(self) -> float | None:
        """The loss of an update; None when no token counts."""
        if self._counted_ANT is None:
            return fmean(self._by_row())
        return _mean(self._losses_ANT, self._counted_ANT) if self._counted_ANT.any() else None

    def held_out(self) -> float:
        """The loss of an evaluation."""
        if self._counted_ANT is None:
            return float(self._losses_ANT.mean())
        return _mean(self._losses_ANT, self._counted_ANT)

    def by_domain(self) -> dict[str, float]:
        """The mean loss of every domain in the batches; a domain without a token that counts is left out."""
        places: dict[str, list[int]] = {}
        for row, name in enumerate(self._domains):
            places.setdefault(name, []).append(row)
        if self._counted_ANT is None:
            by_row = self._by_row()
            return {name: fmean(by_row[row] for row in some) for name, some in places.items()}
        losses_MT, counted_MT = self._losses_ANT.flatten(0, 1), self._counted_ANT.flatten(0, 1)
        return {
            name: _mean(losses_MT[some], counted_MT[some]) for name, some in places.items() if counted_MT[some].any()
        }

    def _by_row(self) -> list[float]:
        return list(chain.from_iterable(self._losses_ANT.mean(2).tolist()))


def _mean(losses: Tensor, is_counted: Tensor) -> float:
    """The mean of the losses that count, at least one."""
    return float(losses[is_counted].sum(dtype=torch.float64)) / int(is_counted.sum())


_MASK = (1 << 64) - 1
_PRIME_1, _PRIME_2, _PRIME_5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
_LENGTH_SALT = 3527539
_MODULUS = (1 << 61) - 1


def step_seed(seed: int, step: int) -> int:
    """A signed 64-bit seed for what layers draw at random in this step.

    This is what `hash((seed, step))` gives in 64-bit CPython (xxHash of two lanes). It is written out because Python
    promises nothing about that value, and kept because a resumed training must draw what an uninterrupted one draws.
    """
    accumulated = _PRIME_5
    for number in (seed, step):
        accumulated = (accumulated + _lane(number) * _PRIME_2) & _MASK
        accumulated = ((accumulated << 31) | (accumulated >> 33)) & _MASK
        accumulated = (accumulated * _PRIME_1) & _MASK
    accumulated = (accumulated + (2 ^ _PRIME_5 ^ _LENGTH_SALT)) & _MASK
    if accumulated == _MASK:  # -1 is not a hash
        return 1546275796
    return accumulated - (1 << 64) if accumulated >> 63 else accumulated


def _lane(number: int) -> int:
    """The number's residue modulo 2^61 - 1 with its sign, where -1 becomes -2."""
    residue = abs(number) % _MODULUS * (-1 if number < 0 else 1)
    return (-2 if residue == -1 else residue) & _MASK
