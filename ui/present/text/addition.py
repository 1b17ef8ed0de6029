"""The certificate of an addition as rows for a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.formatting.number_format import perplexity

Findings = Mapping[str, Any]


def change_rows(findings: Findings) -> list[dict[str, Any]]:
    """Perplexity of each domain before and after, the new one first."""
    return [
        {
            "domain": one["domain"],
            "which": "the new one" if one["is_new"] else "old",
            "tokens": one["num_tokens"],
            "before": one["before"],
            "after": one["after"],
            "change (%)": one["change_percent"],
        }
        for one in sorted(findings["domains"], key=lambda one: not one["is_new"])
    ]


def folder_rows(findings: Findings) -> list[dict[str, Any]]:
    """The hashed folders, and the result of each check."""
    return [
        {
            "what": one["what"],
            "files": one["num_files"],
            "SHA-256 of its manifest": one["sha256"],
            "recorded before the addition": one["recorded_before"],
            "result": " ".join(one["faults"]) or "unchanged",
        }
        for one in findings["folders"]
    ]


def single_words(findings: Findings) -> str:
    """The single new expert compared with its parent; empty without scores."""
    sentences = []
    for one in findings["alone"]:
        beside = (
            f", its parent {perplexity(one['parent'])}" if one["parent"] is not None else ", its parent was not scored"
        )
        sentences.append(f"Alone on {one['domain']}: perplexity {perplexity(one['expert'])} per token{beside}.")
    return " ".join(sentences)
