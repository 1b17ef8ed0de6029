"""What a model forgot, as rows for a table and in sentences (DEMix table 13). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ui.present.text.formatting import pluralize

Findings = Mapping[str, Any]


def forgetting_rows(found: Findings) -> list[dict[str, Any]]:
    """Each domain before and after, what was adapted to first."""
    return [
        {
            "domain": row["domain"],
            "role": "target" if row["is_target"] else row["role"],
            "tokens": row["num_tokens"],
            "before": row["before"],
            "after": row["after"],
            "change (%)": row["change_percent"],
        }
        for row in sorted(found["domains"], key=lambda row: not row["is_target"])
    ]


def forgetting_words(found: Findings) -> Iterator[str]:
    """The mean change of the target and of every role that has a domain."""
    for name, mean in found["averages"].items():
        if mean["num_domains"]:
            what = "On what was adapted to" if name == "target" else f"On average over {_others(name, mean)}"
            yield f"{what}: {mean['change_percent']:+.1f} %."


def _others(role: str, mean: Mapping[str, Any]) -> str:
    return pluralize(mean["num_domains"], f"{role} domain")
