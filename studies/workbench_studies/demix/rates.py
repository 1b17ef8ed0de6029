"""At which learning rate a replication adapts to new domains: §6.1 asks for a tenth of the training's."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import Any

from workbench_studies.demix.growth import ADAPTED_PLACES

PAPER_SHARE = 0.1  # of the training's learning rate (DEMix §6.1)


def adapting_rate(budget: Mapping[str, Any]) -> str:
    """`adapted at 0.5 of the training's learning rate (§6.1: 0.1)`; empty at the paper's."""
    training, adapting = (budget.get(name, {}).get("learning_rate") for name in ("training", "adapting"))
    if not training or adapting is None or isclose(adapting / training, PAPER_SHARE, rel_tol=0.01):
        return ""
    return f"adapted at {adapting / training:g} of the training's learning rate (§6.1: {PAPER_SHARE:g})"


def is_adapted(claim: Mapping[str, Any]) -> bool:
    """Whether a claim is about what was adapted."""
    return claim["where"] in ADAPTED_PLACES
