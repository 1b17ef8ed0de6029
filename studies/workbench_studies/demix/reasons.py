"""Possible reasons for claims that were not reproduced, from the replication's own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workbench_studies.core.findings import Findings
from workbench_studies.core.report import amount
from workbench_studies.core.verdicts import CONTRADICTED, REPRODUCED, UNDECIDED
from workbench_studies.demix.growth import ADAPTING
from workbench_studies.demix.names import PAPER, Variant
from workbench_studies.demix.orders import FULL_DATA, WORDS


def reasons(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    """Possible reasons why a claim was not reproduced."""
    topics = claim.get("topics", ())  # reports of older versions have none
    if ADAPTING in topics:
        yield tokens_of_a_target(findings)
    if better := _other_readings(findings, claim):
        listed = "; ".join(better)
        yield f"The same scores, mixed otherwise: it is reproduced under another reading of the posterior: {listed}."


def tokens_of_a_target(findings: Findings) -> str:
    """How much text of a target adapting sees, and what dense-DAPT makes of as much; no arm varies that amount."""
    tokens = f"Adapting sees at most {amount(findings['budget']['adapting_tokens'])} tokens of its target."
    rows = findings.get("tables", {}).get("13", [])
    by_target: dict[str, list[float]] = {}
    for row in rows:
        if (value := row.get("perplexity on the target")) is not None:
            by_target.setdefault(row["target"], []).append(value)  # dense-DAPT, then DEMix-DAPT
    both = [values for values in by_target.values() if len(values) == 2]
    ahead = sum(dense < demix for dense, demix in both)
    if not ahead:
        return f"{tokens} No arm varies how many."
    return (
        f"{tokens} From as many, dense-DAPT has less perplexity than DEMix-DAPT on {ahead} of {len(both)} targets, so "
        "the amount of text alone is not the cause. Dense-DAPT trains all parameters, DEMix-DAPT those of the new "
        "expert; no arm tells these apart."
    )


def few_tokens(findings: Findings) -> Iterator[str]:
    """One guess for all claims that failed against models whose feed-forward networks see all text."""
    failed = {
        number: claim["model"]
        for number, claim in enumerate(findings["claims"], 1)
        if FULL_DATA in claim.get("topics", ()) and claim["mark"] in (CONTRADICTED, UNDECIDED)
    }
    if failed:
        methods: list[Variant] = list(dict.fromkeys(failed.values()))
        numbers, models = _listed(map(str, failed)), _listed(WORDS[method] for method in methods)
        crossings = " ".join(crossing_words(findings, method) for method in methods)
        yield (
            f"Guess: few tokens, for claim{'' if len(failed) == 1 else 's'} {numbers}. {_share_of_text(findings)}; the "
            f"feed-forward networks of {models} see all of it. {crossings}"
        )


def _share_of_text(findings: Findings) -> str:
    total = findings["budget"]["training_tokens"]
    each = total // len(findings["domains"])
    return f"An expert sees one domain's share of the text, {amount(each)} of {amount(total)} tokens"


def _listed(words: Iterable[str]) -> str:
    """`1, 2 and 5`."""
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last


def crossing_words(findings: Findings, method: Variant = "dense") -> str:
    """Whether DEMix overtakes a baseline (Dense) on held-out text while they train, and where."""
    result, other = findings["crossing"].get(method), WORDS[method]
    if not result:
        return f"Whether DEMix overtakes {other} is not known yet: their curves are missing."
    numbers = f"{result['lower']:.2f} against {result['higher']:.2f}"
    last = f"at the end ({amount(result['last_tokens'])} tokens) {numbers} on some development text"
    if result["tokens"] is None:
        return f"DEMix (naive) does not overtake {other} within this training: {last}."
    return f"DEMix (naive) is below {other} from {amount(result['tokens'])} tokens on, and stays there: {last}."


def _other_readings(findings: Findings, claim: Mapping[str, Any]) -> list[str]:
    same = [
        one for one in findings["readings"] if (one["where"], one["sentence"]) == (claim["where"], claim["sentence"])
    ]
    return [one["reading"] for one in same if one["mark"] == REPRODUCED and one["reading"] != str(PAPER)]
