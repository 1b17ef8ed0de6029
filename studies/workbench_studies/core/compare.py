"""Two reports side by side: which marks differ, and how far the estimates moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench_studies.core.findings import Findings
from workbench_studies.core.report import format_marks
from workbench_studies.core.verdicts import todays_mark


@dataclass(frozen=True)
class ClaimMove:
    """One claim in two reports; `moved` is the second value less the first, in the claim's unit."""

    where: str
    sentence: str
    marks: tuple[str, str]
    values: tuple[float | None, float | None]
    moved: float | None
    unit: str
    is_outside: bool  # the second value lies outside the first interval


@dataclass(frozen=True)
class Comparison:
    """The claims that both reports have, and the sentences that only one has."""

    names: tuple[str, str]
    papers: tuple[str, str]
    flipped: list[ClaimMove]
    same: list[ClaimMove]
    only_first: list[str]
    only_second: list[str]


def compare(first: Findings, second: Findings) -> Comparison:
    """Compares the claims by where they stand and what they say."""
    ours, theirs = ({(one["where"], one["sentence"]): one for one in of["claims"]} for of in (first, second))
    moves = [_move(claim, theirs[key]) for key, claim in ours.items() if key in theirs]
    flipped = [move for move in moves if move.marks[0] != move.marks[1]]
    return Comparison(
        (first["name"], second["name"]),
        (first["paper"], second["paper"]),
        flipped,
        [move for move in moves if move not in flipped],
        [": ".join(key) for key in ours if key not in theirs],
        [": ".join(key) for key in theirs if key not in ours],
    )


def _move(one: Mapping[str, Any], other: Mapping[str, Any]) -> ClaimMove:
    before, after = one["value"], other["value"]
    is_measured = before is not None and after is not None
    first, second = (format_marks({**claim, "mark": todays_mark(claim)}) for claim in (one, other))
    return ClaimMove(
        one["where"],
        one["sentence"],
        (first, second),
        (before, after),
        after - before if is_measured else None,
        one["unit"],
        is_measured and not one["low"] <= after <= one["high"],
    )


def summarize_comparison(comparison: Comparison) -> str:
    """`2 of 33 marks differ; 5 of 25 estimates moved out of their first interval.`"""
    moves = [*comparison.flipped, *comparison.same]
    measured = [move for move in moves if move.moved is not None]
    sentence = f"{len(comparison.flipped)} of {len(moves)} marks differ; {sum(one.is_outside for one in measured)} of "
    sentence += f"{len(measured)} estimates moved out of their first interval."
    if single := len(comparison.only_first) + len(comparison.only_second):
        sentence += f" {single} claim{'' if single == 1 else 's'} in one report only."
    return sentence
