"""The logarithmic scale of ratios."""

from __future__ import annotations

import math

import pytest

from workbench.formatting.palette import as_text, colour_bar, logs
from workbench_studies.core.drawing import ratio_heatmap


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.0, 63.0, ["1", "2", "5", "10", "20", "50"]),
        (0.4, 3.0, ["0.5", "1", "2"]),
        (1.0, 1e6, ["1", "10", "100", "1e+03", "1e+04", "1e+05", "1e+06"]),
        (1.0, 1.05, ["1", "1.01", "1.02", "1.04", "1.05"]),
    ],
)
def test_ticks_are_ratios_that_stand_at_their_logarithms(low: float, high: float, ticks: list[str]) -> None:
    bar = colour_bar(low, high)
    assert bar.ticktext == ticks
    assert bar.tickvals == pytest.approx([math.log(float(tick)) for tick in ticks], abs=5e-3)


def test_what_was_not_measured_has_no_colour_and_no_words() -> None:
    assert logs([[None, 1.0]]) == [[None, 0.0]]
    assert as_text([[None, 1.0]]) == [["", "1.00"]]


def test_a_ratio_just_below_one_does_not_read_as_one() -> None:
    assert as_text([[0.994, 0.998, 0.99999, 1.0, 1.004]]) == [["0.99", "0.998", "0.999", "1.00", "1.00"]]


def test_a_report_colours_ratios_by_their_logarithm_and_writes_the_ratios() -> None:
    drawn, *_ = ratio_heatmap([[1.0, 0.5], [50.0, 1.0]], ["a", "b"], ("domain", "expert"), "the own expert")
    (cells,) = drawn.data
    assert [list(row) for row in cells.z] == [[0.0, math.log(0.5)], [math.log(50), 0.0]]
    assert ([list(row) for row in cells.text], cells.texttemplate) == ([["1.00", "0.50"], ["50.00", "1.00"]], "%{text}")
    assert list(cells.colorbar.ticktext) == ["0.5", "1", "2", "5", "10", "20", "50"]
