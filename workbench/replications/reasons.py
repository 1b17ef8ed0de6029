"""What did not come out, and what the replication's own numbers say about why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.replications.demix import PAPER
from workbench.replications.verdicts import NOT_REPRODUCED, REPRODUCED

Findings = Mapping[str, Any]


def not_reproduced(findings: Findings) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Each claim that was tested and did not come out, with what may explain it."""
    failed = [claim for claim in findings["claims"] if claim["mark"] == NOT_REPRODUCED]
    return [(claim, [claim["why"], *_reasons(findings, claim)]) for claim in failed]


def _reasons(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    if claim["where"] == "Table 3" and "DEMix" in claim["sentence"]:
        yield tokens_of_an_expert(findings)
    if "DAPT" in claim["sentence"]:
        yield f"Adapting sees at most {amount(findings['budget']['adapting_tokens'])} tokens of its target."
    if better := _other_readings(findings, claim):
        yield f"It is reproduced under another reading of the posterior: {'; '.join(better)}."
    if claim["why"].startswith("Undecided") and findings["seeds"] < 3:
        yield f"{seeds_words(findings)} and this much test text cannot tell a difference of this size."


def tokens_of_an_expert(findings: Findings) -> str:
    """How little an expert sees beside the dense model."""
    budget, num_domains = findings["budget"], len(findings["domains"])
    whole, each = budget["training_tokens"], budget["training_tokens"] // num_domains
    return (
        f"An expert sees one domain's share of the text, {amount(each)} of {amount(whole)} tokens; "
        f"the dense model's feed-forward networks see all of it. {crossing_words(findings)}"
    )


def crossing_words(findings: Findings) -> str:
    """Whether DEMix overtakes Dense on held-out text while they train, and where."""
    found = findings["crossing"].get("dense")
    if not found:
        return "Whether DEMix overtakes Dense cannot be seen yet: their curves are not there."
    last = f"at the end ({amount(found['last_tokens'])} tokens) {found['lower']:.2f} against {found['higher']:.2f}"
    if found["tokens"] is None:
        return f"DEMix (naive) does not overtake Dense within what was trained: {last}."
    return f"DEMix (naive) is below Dense from {amount(found['tokens'])} tokens on, and stays there: {last}."


def amount(tokens: int) -> str:
    """`3,840`, `1.02 M`."""
    return f"{tokens:,}" if tokens < 1_000_000 else f"{tokens / 1e6:,.2f} M"


def seeds_words(findings: Findings) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{findings['seeds']} seed{'' if findings['seeds'] == 1 else 's'}"


def _other_readings(findings: Findings, claim: Mapping[str, Any]) -> list[str]:
    same = [
        one for one in findings["readings"] if (one["where"], one["sentence"]) == (claim["where"], claim["sentence"])
    ]
    return [one["reading"] for one in same if one["mark"] == REPRODUCED and one["reading"] != str(PAPER)]
