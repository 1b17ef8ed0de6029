"""What a calibrated posterior over models of clusters gives beside nearness. It is ours: no claim is judged by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.names import DENSE, System, calibrated
from workbench_studies.core.calibration import comparison, fit_row
from workbench_studies.core.findings import Findings, Row

TRAINING, NOVEL = "training domains", "novel domains"


def calibrated_findings(evidence: CbtmEvidence) -> Row:
    """The fit of each seed, and how the reading compares on test text of both kinds with what the paper has."""
    return {
        "fits": [fit_row(seed, fit) for seed, fit in sorted(evidence.measured.fits.items())],
        "against": list(_against(evidence)),
    }


def _against(evidence: CbtmEvidence) -> Iterator[Row]:
    main = evidence.subject.main
    own = calibrated(main)
    others = {
        "nearness (Eq. 3)": System(main),
        "posterior, equal prior": System(main, "uniform"),
        "posterior, cached prior (BTM)": System(main, "cached"),
        "Dense": System(DENSE),
    }
    for text, domains in ((TRAINING, evidence.subject.domains), (NOVEL, evidence.subject.novel)):
        for name, other in others.items():
            if compared := comparison(evidence.resampled, own, other, domains):
                yield {"text": text, "against": name, **compared}


def where_it_holds(findings: Findings) -> str:
    """On which text the reading has surely less or more perplexity than what; empty of reports without it."""
    rows: list[Row] = findings.get("calibrated", {}).get("against", [])
    parts = []
    for text in (TRAINING, NOVEL):
        own = [row for row in rows if row["text"] == text]
        words = {"less": "less perplexity than", "more": "more perplexity than", "undecided": "no sure difference from"}
        named = {side: [row["against"] for row in own if row["side"] == side] for side in words}
        compared = [f"{words[side]} {', '.join(names)}" for side, names in named.items() if names]
        if compared:
            parts.append(f"On the {text} it has {'; '.join(compared)}.")
    return " ".join(parts)


def against_rows(findings: Findings) -> list[dict[str, Any]]:
    """The comparisons as rows of a table."""
    return [
        {
            "text": row["text"],
            "against": row["against"],
            "calibrated": row["calibrated"],
            "other": row["other"],
            "change, %": row["change"]["value"],
            "low": row["change"]["low"],
            "high": row["change"]["high"],
            "perplexity": row["side"],
        }
        for row in findings["calibrated"]["against"]
    ]
