"""Means of losses over the tokens that count: of texts over all tokens, of conversations over those of answers.

Shapes: A accumulated batches, B rows, N rows of all processes together, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import fmean

import torch
from torch import Tensor

from engine.models.rows import Rows
from engine.training.data import Batch


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
        """The mean loss of every domain in the batches; a domain of which no token counts is left out."""
        places: dict[str, list[int]] = {}
        for place, name in enumerate(self._domains):
            places.setdefault(name, []).append(place)
        if self._counted_ANT is None:
            by_row = self._by_row()
            return {name: fmean(by_row[place] for place in some) for name, some in places.items()}
        losses_MT, counted_MT = self._losses_ANT.flatten(0, 1), self._counted_ANT.flatten(0, 1)
        return {
            name: _mean(losses_MT[some], counted_MT[some]) for name, some in places.items() if counted_MT[some].any()
        }

    def _by_row(self) -> list[float]:
        return list(chain.from_iterable(self._losses_ANT.mean(2).tolist()))


def _mean(losses: Tensor, is_counted: Tensor) -> float:
    """The mean of the losses that count, of which there is one at least."""
    return float(losses[is_counted].sum(dtype=torch.float64)) / int(is_counted.sum())
