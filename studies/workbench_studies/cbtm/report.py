"""What only code can say in C-BTM's report; its paragraphs and tables are declared in `report.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from workbench_studies.core.report import Report, Rows, amount, matrix
from workbench_studies.core.spec import read_table
from workbench_studies.core.verdicts import Findings


def describe_best(findings: Findings) -> str:
    """The best number of clusters at the full budget, with the dense model."""
    rows = [row for row in findings["tables"]["clusters"] if row["budget"] == "whole" and row["ours"] is not None]
    dense = next((row["ours"] for row in rows if row["clusters"] == 1), None)
    if dense is None or len(rows) < 2:
        return "Which number of clusters is best is not known yet: their scores are missing."
    best = min(rows, key=lambda row: row["ours"])
    if best["clusters"] == 1:
        return f"Dense is best at equal tokens: perplexity {dense:.2f}."
    return f"{best['clusters']} clusters are best at equal tokens: perplexity {best['ours']:.2f}, Dense {dense:.2f}."


def _moe_seeds(findings: Findings) -> str:
    seeds = findings["budget"].get("moe_seeds")
    words = " It is trained in {} of the seeds, since it takes several times as long as Dense."
    return words.format(seeds) if seeds else ""


def _labels(findings: Findings) -> str:
    labels = findings["pictures"]["labels"]
    if labels is None:
        return "The clusters do not exist yet."
    by_seed = ", ".join(f"{one:.2f}" for one in labels["information"])
    shares = "The share of each label's documents in each cluster, first seed."
    return f"{shares} Normalised mutual information, by seed: {by_seed}."


def _ratio_rows(findings: Findings) -> Rows:
    ratios = findings["pictures"]["ratios"] or []
    return matrix("expert", map(str, range(len(ratios))), map(str, range(len(ratios))), ratios)


def _label_rows(findings: Findings) -> Rows:
    labels = findings["pictures"]["labels"] or {"labels": [], "shares": [[]]}
    return matrix("label", labels["labels"], map(str, range(len(labels["shares"][0]))), labels["shares"])


def _size_rows(findings: Findings) -> Rows:
    return [
        {
            "clusters": name,
            "seed": seed,
            "smallest": min(one),
            "median": float(median(one)),
            "largest": max(one),
            "sizes": ", ".join(map(str, sorted(one))),
        }
        for name, seeds in findings["pictures"]["sizes"].items()
        for seed, one in enumerate(seeds)
    ]


# what did not come out, and where our reading holds -----------------------------------------------


def reasons(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    """Possible reasons why a claim was not reproduced: what arms varied, and guesses, which say that they are."""
    if claim["where"] == "Figure 5" and (leads := _leads(findings)):
        yield f"Tokens were varied: {leads}."
    if claim["where"] in ("Figure 9", "Table 9", "§2.2"):
        size = findings["budget"]["block_size"]
        yield f"Guess: short texts. A model reads blocks of {size} tokens of cut documents; the paper's read 2,048."


def _leads(findings: Findings) -> str:
    """The lead of the main number of clusters over Dense at each budget; empty where one is missing."""
    rows = {(row["clusters"], row["budget"]): row for row in findings["tables"]["clusters"] if row["ours"] is not None}
    parts = [
        f"{dense['ours'] - main['ours']:+.2f} after {amount(main['tokens after branching'])} tokens"
        for (number, budget), dense in rows.items()
        if number == 1 and (main := rows.get((findings["clusters"], budget)))
    ]
    return f"the lead of {findings['clusters']} clusters over one is {' and '.join(parts)}" if len(parts) > 1 else ""


def where_it_holds(findings: Findings) -> str:
    """On which text our reading has surely less or more perplexity than what; empty of reports without it."""
    rows: list[dict[str, Any]] = findings.get("calibrated", {}).get("against", [])
    words = {"less": "less perplexity than", "more": "more perplexity than", "undecided": "no sure difference from"}
    parts = []
    for text in ("training domains", "novel domains"):
        own = [row for row in rows if row["text"] == text]
        named = {side: [row["against"] for row in own if row["side"] == side] for side in words}
        compared = [f"{words[side]} {', '.join(names)}" for side, names in named.items() if names]
        if compared:
            parts.append(f"On the {text} it has {'; '.join(compared)}.")
    return " ".join(parts)


_CUT = " Documents of at most {:,} characters."
REPORT = Report(
    read_table(__file__, "report"),
    reasons,
    {
        "best": describe_best,
        "moe_seeds": _moe_seeds,
        "cut": lambda findings: _CUT.format(length) if (length := findings["budget"]["piece_length"]) else "",
        "tokens_at_less": lambda findings: amount(findings["budget"]["less"] * findings["budget"]["training_tokens"]),
        "labels": _labels,
    },
    {
        "ratios": _ratio_rows,
        "labels": _label_rows,
        "sizes": _size_rows,
    },
)
