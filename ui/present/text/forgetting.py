"""Forgetting as rows and sentences (DEMix table 13)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ui.present.text.formatting import pluralize
from workbench.formatting.number_format import change
from workbench.questions.forgetting import Forgetting, MeanChange


def forgetting_rows(answer: Forgetting) -> list[dict[str, Any]]:
    """Each domain before and after, targets first."""
    return [
        {
            "domain": row.domain,
            "role": "target" if row.is_target else row.role,
            "tokens": row.num_tokens,
            "before": row.before,
            "after": row.after,
            "change (%)": row.change_percent,
        }
        for row in sorted(answer.domains, key=lambda row: not row.is_target)
    ]


def forgetting_words(answer: Forgetting) -> Iterator[str]:
    """The mean change of the target and of every role that has a domain."""
    for name, mean in answer.averages.items():
        if mean.num_domains:
            what = "On the target" if name == "target" else f"On average over {_others(name, mean)}"
            yield f"{what}: {change(mean.change_percent)}."


def _others(role: str, mean: MeanChange) -> str:
    return pluralize(mean.num_domains, f"{role} domain")
