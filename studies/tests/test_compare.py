"""Two reports: which marks differ, and how far the estimates moved."""

from __future__ import annotations

from typing import Any

from studies.tests.test_forest import stored
from workbench_studies.core.report import compare, summarize_comparison
from workbench_studies.core.verdicts import is_below


def report(name: str, **claims: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "paper": "demix", "claims": [claim | {"sentence": key} for key, claim in claims.items()]}


def test_flips_and_moves_are_named_and_single_claims_counted() -> None:
    first = report("a", one=stored(is_below, -2.0, -3.0, -1.0), two=stored(is_below, -2.0, -3.0, -1.0))
    second = report("b", one=stored(is_below, 2.0, 1.0, 3.0), two=stored(is_below, -2.5, -4.0, -1.0))
    second["claims"].append(stored(is_below, 1.0, 0.5, 2.0) | {"sentence": "new"})
    result = compare(first, second)
    (flip,), (same,) = result["flipped"], result["same"]
    assert (flip["sentence"], flip["marks"], flip["moved"]) == ("one", ("reproduced", "contradicted"), 4.0)
    assert (same["sentence"], same["moved"], same["is_outside"]) == ("two", -0.5, False)
    assert result["only_second"] == ["Table 3: new"]
    assert summarize_comparison(result) == (
        "1 of 2 marks differ; 1 of 2 estimates moved out of their first interval. 1 claim in one report only."
    )


def test_words_of_an_earlier_version_are_no_flip() -> None:
    undecided = stored(is_below, -0.5, -2.0, 1.0)
    before = undecided | {"mark": "not reproduced", "is_undecided": True}
    now = undecided | {"mark": "undecided"}
    assert compare(report("a", one=before), report("b", one=now))["flipped"] == []
