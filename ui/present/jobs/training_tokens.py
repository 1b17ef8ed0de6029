"""How much text a training has seen, from its job's spec."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

_SIZES = ("block_size", "sequences_per_domain", "accumulate")


def tokens_per_step(spec: Mapping[str, Any]) -> int:
    """The tokens of one update over all its domains; 0 for a job that trains nothing."""
    training = spec.get("training") or {}
    return int(prod(training.get(size, 0) for size in _SIZES)) * len(spec.get("domains", ["its one domain"]))
