"""Ticks of a logarithmic axis are numbers that read as such."""

from __future__ import annotations

import pytest

from workbench_studies.core.drawing import figure, logarithmic


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([30, 900], [20, 50, 100, 200, 500, 1000]),
        ([62, 148], [60, 70, 80, 90, 100, 110, 120, 130, 140, 150]),
        ([51.2, 53.9], [51, 52, 53, 54]),
        ([40, 40], [40]),
    ],
)
def test_ticks_are_round_numbers_of_the_values(values: list[float], ticks: list[float]) -> None:
    drawn = figure("tokens", "perplexity")
    logarithmic(drawn, values)
    assert list(drawn.layout.yaxis.tickvals) == pytest.approx(ticks)
    assert drawn.layout.yaxis.type == "log"
