"""The forest plot: each claim on one scale, the paper's direction to the right, each mark by colour and symbol."""

from __future__ import annotations

from typing import Any

import pytest

from engine.statistics.estimates import Estimate
from workbench_studies.core.drawing import _LOOKS, explain_forest, forest, forest_text, look_of, place_of
from workbench_studies.core.report import Section
from workbench_studies.core.verdicts import MARKS, Claim, Verdict, is_above, is_below, is_within, untestable
from workbench_studies.papers.report_pages import anchor, section_of

CLAIM = Claim("Table 3", "one is below another", "1 < 2")


def stored(judge: Any, value: float, low: float, high: float, border: float = 0.0) -> dict[str, Any]:
    verdict: Verdict = judge(CLAIM, Estimate(value, low, high, (value, value)), border, unit="%")
    return verdict.as_dict()


@pytest.mark.parametrize(
    ("judge", "numbers", "is_right"),
    [
        (is_below, (-2.0, -3.0, -1.0, 0.0), True),
        (is_below, (2.0, 1.0, 3.0, 0.0), False),
        (is_above, (2.0, 1.0, 3.0, 0.0), True),
        (is_above, (1.5, 1.2, 1.8, 2.0), False),
        (is_below, (1.5, 1.2, 1.8, 2.0), True),
        (is_within, (0.1, -0.2, 0.4, 0.5), True),
        (is_within, (-0.8, -0.9, -0.7, 0.5), False),
    ],
)
def test_a_claim_lies_right_of_the_border_where_it_holds_and_left_where_it_is_contradicted(
    judge: Any, numbers: tuple[float, float, float, float], is_right: bool
) -> None:
    claim = stored(judge, *numbers)
    place = place_of(claim)
    assert place is not None
    assert (place.low > 0, place.high < 0) == (is_right, not is_right)
    assert place.low <= place.value <= place.high
    assert max(abs(place.low), abs(place.high)) == pytest.approx(1)
    assert look_of(claim).words == ("reproduced" if is_right else "contradicted")


def test_an_interval_that_includes_the_border_crosses_the_middle_in_picture_and_text() -> None:
    claim = stored(is_below, -0.6, -2.0, 1.0)
    place = place_of(claim)
    assert place is not None
    assert (place.low, place.high) == (-0.5, 1.0)
    assert look_of(claim).words == "undecided"
    *_, line = forest_text([claim]).splitlines()
    assert line.startswith("·····─────┼──○───────")
    assert line.endswith("Table 3: one is below another: -0.60 [-2.00, +1.00] %")


def test_every_mark_has_a_colour_and_a_symbol_of_its_own() -> None:
    looks = list(_LOOKS.values())
    for of_look in ("colour", "symbol", "letter", "words"):
        assert len({getattr(look, of_look) for look in looks}) == len(looks)
    assert {look_of({"mark": mark, "is_undecided": True}).words for mark in MARKS} >= {"undecided", "reproduced"}
    newer = {mark: look_of({"mark": mark}).words for mark in ("contradicted", "undecided", "weaker claim reproduced")}
    assert all(mark == words for mark, words in newer.items())
    assert look_of({"mark": "reproduced (one seed)"}).words == "reproduced"


def test_the_plot_counts_its_sides_and_is_left_out_where_nothing_was_tested() -> None:
    claims = [stored(is_below, -2.0, -3.0, -1.0), stored(is_below, 0.5, -1, 2), untestable(CLAIM).as_dict()]
    assert "Of 2 tested claims 1 lie right, 0 left, 1 cross." in explain_forest({"claims": claims})
    drawn = forest({"claims": claims})
    assert drawn is not None
    assert len(drawn.table) == 3
    assert {trace.name for trace in drawn.figure.data} == {"reproduced (1)", "undecided (1)", "not testable here (1)"}
    assert forest({"claims": claims[2:]}) is None
    before = [{name: value for name, value in claim.items() if name not in ("side", "border")} for claim in claims]
    assert forest({"claims": before}) is None  # reports of before do not say where the paper points


def test_a_claim_leads_to_the_section_of_its_table_or_figure() -> None:
    titles = ("Table 3: averages", "Table 13 and figure 6: adapting", "Figures 7 and 8: blocks", "Weights (§2.4)")
    sections = [Section(title) for title in titles]
    expected = {"Table 3": 0, "Figure 6": 1, "Table 13, Figure 6": 1, "Figures 7, 8": 2, "§2.4": 3}
    assert {where: section_of(where, sections) for where in expected} == {
        where: titles[place] for where, place in expected.items()
    }
    assert section_of("Table 1", sections) == ""
    assert anchor(titles[1]) == "table-13-and-figure-6-adapting"
