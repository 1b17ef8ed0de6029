"""A small heatmap as a table: its texts, colours and frames are those of the chart."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from ui.present.charts.heatmap import add_frames, add_targets, frame, new_heatmap
from ui.present.charts.small_grid import small_grid
from workbench.formatting.palette import look_of

EVIL = "<b>&amp;"


def heatmap(z: list[list[float | None]], **cells: Any) -> go.Figure:
    names = [f"column {number}" for number in range(len(z[0]))]
    options = {"numbers": "%{z:,.1f}", "colorbar": {"title": "perplexity"}, "z": z, **cells}
    return new_heatmap("across", "down", names, [EVIL] * len(z), **options)


def test_a_cell_has_its_number_its_hover_text_and_colours_that_can_be_read() -> None:
    figure = heatmap([[1000.0, 2.0], [None, 3.0]], hovertemplate="%{z:,.1f} per token<extra></extra>")
    add_frames(figure, frame(1, 0, "dot"), frame(0, 1, colour="#123456"))
    grid = small_grid(figure, "the words")
    assert grid is not None
    assert (grid["label"], grid["x"], grid["y"], grid["number"]) == ("the words", "across", "down", "perplexity")
    assert [[cell["text"] for cell in row] for row in grid["cells"]] == [["1,000.0", "2.0"], ["", "3.0"]]
    high, low = grid["cells"][0]
    assert high["says"] == "1,000.0 per token"
    assert (high["fill"], high["letters"]) == ("rgb(18, 80, 122)", "#ffffff")
    assert (low["fill"], low["letters"]) == ("rgb(243, 234, 217)", "#000000")
    assert (low["frame"], grid["cells"][1][0]["frame"]) == ("3px solid #123456", "3px dotted #b0521c")
    assert grid["cells"][1][0]["fill"] == ""


def test_names_and_hover_texts_are_plain_text() -> None:
    figure = heatmap([[1.0]], looks=([look_of(0, "Co")], []))
    add_targets(figure, [["&lt;b&gt; on law<br>ratio 1.0"]])
    grid = small_grid(figure, "")
    assert grid is not None
    assert grid["rows"] == [{"name": EVIL, "mark": "", "colour": ""}]
    assert (grid["columns"][0]["mark"], grid["columns"][0]["colour"]) == ("Co", look_of(0).colour)
    assert grid["cells"][0][0]["says"] == "<b> on law\nratio 1.0"


def test_other_charts_and_large_heatmaps_are_none() -> None:
    assert small_grid(go.Figure(), "") is None
    assert small_grid(heatmap([[1.0] * 13]), "") is None
    assert small_grid(heatmap([[1.0] * 12] * 12), "") is not None
