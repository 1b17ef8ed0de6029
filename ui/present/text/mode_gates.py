"""What the gates inside an expert with parts weighed, as rows to read: its backbone first, then its parts.

An expert that did not run at a token is left out there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.events import GateWeights

Gates = Sequence[Mapping[str, GateWeights]]  # by token and expert


def parts_inside(gates: Gates) -> dict[str, list[str]]:
    """The active parts of every expert that has some."""
    return {expert: list(weights.parts) for gate in gates for expert, weights in gate.items()}


def num_blocks(gates: Gates, expert: str) -> int:
    """Into how many blocks its backbone is divided."""
    return next(len(gate[expert].backbone) for gate in gates if expert in gate)


def rows_inside(gates: Gates, expert: str, parts: Sequence[str], block: int | None = None) -> list[list[float]]:
    """At each token where it spoke, the weights of the backbone and of these parts; 0 of a part that was off.

    Those of one block (from 0), or their mean over the blocks; each row adds up to 1.
    """
    return [_row(gate[expert], parts, block) for gate in gates if expert in gate]


def means(rows: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each column."""
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _row(gates: GateWeights, parts: Sequence[str], block: int | None) -> list[float]:
    off = (0.0,) * len(gates.backbone)
    weights = [gates.backbone, *(gates.parts.get(part, off) for part in parts)]
    return [sum(blocks) / len(blocks) if block is None else blocks[block] for blocks in weights]
