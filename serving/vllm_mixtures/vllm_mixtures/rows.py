"""What a request says of the group that it is a row of.

A mixture of E experts is a group of E requests with the same prompt, each with its own adapter. Each carries a JSON
string as `vllm_xargs["mixture"]`: its group, its row and the number of rows; the first row in addition the mixture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from vllm import SamplingParams

ARGUMENT = "mixture"
MOST_ROWS = 1024


@dataclass(frozen=True)
class MixtureSpec:
    """The mixture of a group: its gate, and how its tokens are drawn."""

    gate: Mapping[str, Any]  # as `engine.mixing.gate_type.GateConfig` is stored
    prior: Sequence[float]  # one for each row
    sampling: Mapping[str, Any] = field(default_factory=dict)  # of `engine.config.SamplingConfig`
    observed: Sequence[Sequence[float]] = ()  # log-probability (nats) of each prompt token but the first: token x row
    evidence_from: int = 0  # the position in the prompt where evidence begins
    unused: Sequence[int] = ()  # rows of the vocabulary that no token has


@dataclass(frozen=True)
class Row:
    """The place of a request in its group."""

    group: str
    number: int
    num_rows: int
    spec: MixtureSpec | None = None  # of the first row


def row_of(params: SamplingParams | None) -> Row | None:
    """The place of a request in its group; None for a request of its own. Raises ValueError for what it cannot be."""
    text = (params.extra_args or {}).get(ARGUMENT) if params is not None else None
    if text is None:
        return None
    try:
        data = json.loads(text)
        group, number, num_rows = data["group"], data["row"], data["rows"]
        spec = data.get("spec")
        row = Row(group, number, num_rows, None if spec is None else _spec(spec))
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"“{ARGUMENT}” must be JSON with group, row and rows: {error}.") from None
    if not (isinstance(group, str) and group and isinstance(number, int) and isinstance(num_rows, int)):
        raise ValueError(f"“{ARGUMENT}”: group must be text, row and rows must be numbers.")
    if not 0 <= number < num_rows <= MOST_ROWS:
        raise ValueError(
            f"“{ARGUMENT}”: row {number} of {num_rows} is not one of 0 to rows - 1, of {MOST_ROWS} at most."
        )
    if (number == 0) != (row.spec is not None):
        raise ValueError(f"“{ARGUMENT}”: row 0 and no other must have the spec of the mixture.")
    if row.spec is not None and len(row.spec.prior) != num_rows:
        raise ValueError(f"“{ARGUMENT}”: {len(row.spec.prior)} weights for {num_rows} rows.")
    if row.spec is not None and any(len(one) != num_rows for one in row.spec.observed):
        raise ValueError(f"“{ARGUMENT}”: each token of the prompt needs {num_rows} log-probabilities.")
    return row


def _spec(data: Mapping[str, Any]) -> MixtureSpec:
    known = {one.name for one in fields(MixtureSpec)}
    if unknown := sorted(set(data) - known):
        raise ValueError(f"the spec has no field {', '.join(unknown)}")
    return MixtureSpec(**data)
