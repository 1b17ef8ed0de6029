"""The bigram overlap of domains, every two of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TypedDict

from ui.present.pages import SHARED_TEXT, SPECIALIZATION
from ui.reports.report_type import Part, ReportType
from workbench.formatting.number_format import share
from workbench.kinds.kind import ResultLink


class OverlapFindings(TypedDict):
    """The domains, and a symmetric matrix of the share of frequent bigrams that two of them have in common."""

    domains: list[str]
    overlap: list[list[float]]


def _sentence(findings: OverlapFindings) -> str:
    pairs = combinations(enumerate(findings["domains"]), 2)
    most, one, other = max((findings["overlap"][i][j], one, other) for (i, one), (j, other) in pairs)
    return f"{one} and {other} have most in common: {share(most)} of their frequent bigrams."


def _describe(findings: OverlapFindings) -> Iterator[Part]:
    names = findings["domains"]
    yield "The share of frequent bigrams that two domains have in common: 0 is none, 1 is all."
    yield [
        {"domain": name, **dict(zip(names, row, strict=True))}
        for name, row in zip(names, findings["overlap"], strict=True)
    ]
    yield "Next to the specialization of a mixture: workbench evaluate affinity MIXTURE"


REPORT = ReportType(
    name="overlap",
    title="Overlaps of domains",
    findings=OverlapFindings,
    sentence=_sentence,
    describe=_describe,
    link=ResultLink(
        SPECIALIZATION.address, "See it beside the specialization", lambda _: {"specialization.view": SHARED_TEXT}
    ),
)
