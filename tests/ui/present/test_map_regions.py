"""The areas of a map that became domains are outlined, with the expert that was trained on them."""

from __future__ import annotations

import plotly.graph_objects as go

from ui.present.charts.colours import Looks
from ui.present.charts.map_regions import describe_regions, draw_regions
from workbench.registry.clusters.cluster_documents import MapRegion

CORNERS = [(0.0, 0.0), (1.0, 0.0), (1.0, 2.0)]
REGIONS = [MapRegion("poems", "m/poems", [CORNERS]), MapRegion("laws", None, [CORNERS, CORNERS])]


def test_an_area_is_outlined_and_named_and_dashed_until_an_expert_is_trained_on_it() -> None:
    figure = go.Figure()
    draw_regions(figure, REGIONS, Looks())
    shapes = figure.layout.shapes
    assert [shape.path for shape in shapes] == ["M 0.0,0.0 L 1.0,0.0 L 1.0,2.0 Z"] * 3
    assert [shape.line.dash for shape in shapes] == [None, "dash", "dash"]
    assert [one.text for one in figure.layout.annotations] == ["m/poems", "laws (no expert yet)"]
    assert {one.y for one in figure.layout.annotations} == {2.0}


def test_the_outlines_are_described_in_words() -> None:
    words = "Outlined: what m/poems trained on. Dashed, without an expert yet: laws."
    assert describe_regions(REGIONS) == words
    assert describe_regions([]) == ""
