"""What the gates inside an expert of MoDE weighed, to be read: its backbone first, then its active parts. Pure.

`told` is what the API says of one expert at one token: {"backbone": [block], "parts": {name: [block]}}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Told = Mapping[str, Any]
BACKBONE = "backbone"


def experts_inside(gates: Sequence[Mapping[str, Told]]) -> list[str]:
    """The experts that have parts, among those that the gates [token][expert] tell of."""
    return list(dict.fromkeys(expert for told in gates for expert in told))


def names_inside(told: Told) -> list[str]:
    """The backbone and the parts that were active."""
    return [BACKBONE, *told["parts"]]


def weights_inside(told: Told, block: int | None = None) -> list[float]:
    """The weight of each in one block (from 0), or its mean over all of them; they add up to 1."""
    rows = [told["backbone"], *told["parts"].values()]
    return [sum(row) / len(row) if block is None else row[block] for row in rows]


def mean_inside(gates: Sequence[Mapping[str, Told]], expert: str, block: int | None = None) -> list[tuple[str, float]]:
    """The mean of each over the tokens at which the expert spoke."""
    told = [one[expert] for one in gates if expert in one]
    columns = zip(*(weights_inside(one, block) for one in told), strict=True)
    return [(name, sum(column) / len(told)) for name, column in zip(names_inside(told[0]), columns, strict=True)]
