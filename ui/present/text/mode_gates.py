"""What the gates inside an expert of MoDE weighed, as rows to read: its backbone first, then its parts. Pure.

The API tells it at each token by expert: {"backbone": [block], "parts": {name: [block]}}, of the parts that were
active. An expert that slept at a token is left out there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Told = Mapping[str, Any]
Gates = Sequence[Mapping[str, Told]]  # by token and expert


def parts_inside(gates: Gates) -> dict[str, list[str]]:
    """The active parts of every expert that has some."""
    return {expert: list(told["parts"]) for one in gates for expert, told in one.items()}


def num_blocks(gates: Gates, expert: str) -> int:
    """Into how many blocks its backbone is divided."""
    return next(len(one[expert]["backbone"]) for one in gates if expert in one)


def rows_inside(gates: Gates, expert: str, parts: Sequence[str], block: int | None = None) -> list[list[float]]:
    """At each token where it spoke, the weights of the backbone and of these parts; 0 of a part that was off.

    Those of one block (from 0), or their mean over the blocks; each row adds up to 1.
    """
    return [_row(one[expert], parts, block) for one in gates if expert in one]


def means(rows: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each column."""
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _row(told: Told, parts: Sequence[str], block: int | None) -> list[float]:
    off = [0.0] * len(told["backbone"])
    weights = [told["backbone"], *(told["parts"].get(part, off) for part in parts)]
    return [sum(blocks) / len(blocks) if block is None else blocks[block] for blocks in weights]
