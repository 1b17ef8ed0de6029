"""Whether a training left its expert worse than it found it, by the held-out text of the training itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.formatting.number_format import perplexity

AFTER, BEFORE = "dev_perplexity", "dev_perplexity_before"  # metrics of an expert


def worse_than_before(metrics: Mapping[str, Any]) -> str:
    """A sentence about an expert that its training made worse; empty for others, and where it was not measured."""
    after, before = metrics.get(AFTER), metrics.get(BEFORE)
    if after is None or before is None or after <= before:
        return ""
    return (
        f"Its training made it worse: perplexity {perplexity(after)} on its held-out text, {perplexity(before)} before "
        "the first update. Train it again at a lower learning rate."
    )
