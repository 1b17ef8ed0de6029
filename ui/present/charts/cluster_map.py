"""The map of a clustering: up to 100,000 points drawn by the graphics card, sent as 8 bytes each.

Shapes: P points.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.clusters.map_polygons import lies_in_any
from ui.present.charts.chart import Chart, new_figure
from ui.present.charts.colours import Looks, of_clusters
from ui.present.text.formatting import pluralize
from workbench.formatting.chart_label import label
from workbench.kinds.data.make_domain import MakeDomain
from workbench.registry.cards import ClusteringCard
from workbench.registry.clusters.cluster_documents import POINT, MapPoints

By = Literal["cluster", "domain"]
_HEIGHT = 640
_SIZES = ((2_000, 7), (20_000, 4))  # pixels of a point while there are fewer
_SMALLEST = 3


@dataclass(frozen=True)
class Layer:
    """The points of one cluster, or of one domain: their place on the map and their document's number."""

    name: str
    colour: str
    points_P: NDArray[Any]  # of dtype POINT


@dataclass(frozen=True)
class ClusterMap:
    """The map as shown: coloured by cluster or by domain, with all clusters or a selection."""

    card: ClusteringCard
    layers: list[Layer]
    num_fitted: int
    seed: int

    @property
    def num_points(self) -> int:
        return sum(len(layer.points_P) for layer in self.layers)

    def document(self, layer: int, point: int) -> int | None:
        """The number of the document at a point; None when the map has other points by now."""
        if layer < len(self.layers) and point < len(self.layers[layer].points_P):
            return int(self.layers[layer].points_P["document"][point])
        return None

    def num_inside(self, areas: Sequence[str]) -> int:
        """The number of documents in the areas, which are given as in the spec of a domain made from them."""
        corners = MakeDomain(clustering=self.card.name, name="counted", areas=list(areas)).corners
        return sum(int(lies_in_any(_places(layer.points_P), corners).sum()) for layer in self.layers)


def cluster_map(
    card: ClusteringCard, chart: MapPoints, looks: Looks, by: By = "cluster", only: Sequence[str] = ()
) -> ClusterMap:
    """The map with a layer for each cluster or domain; `only` names the clusters shown, none of them means all."""
    points_P = np.frombuffer(chart.points, dtype=POINT)
    if only:
        points_P = points_P[np.isin(points_P["cluster"], [c.number for c in card.clusters if c.name in only])]
    names = [cluster.name for cluster in card.clusters] if by == "cluster" else card.sources
    numbers_P = points_P["cluster" if by == "cluster" else "source"]
    parts = {name: points_P[numbers_P == number] for number, name in enumerate(names)}
    shown = [(name, part) for name, part in parts.items() if len(part)]
    look = looks.domain if by == "domain" else of_clusters(card.clusters, looks).__getitem__
    layers = [Layer(name, look(name).colour, part) for name, part in shown]
    return ClusterMap(card, layers, chart.num_fitted, chart.seed)


def map_picture(view: ClusterMap, by: By) -> Chart:
    """The map as a chart, what to read in it, and a row for each layer."""
    figure = new_figure("", "", height=_HEIGHT)
    size = next((pixels for most, pixels in _SIZES if view.num_points < most), _SMALLEST)
    for layer in view.layers:
        figure.add_scattergl(
            x=np.ascontiguousarray(layer.points_P["x"]),
            y=np.ascontiguousarray(layer.points_P["y"]),
            name=label(layer.name, 28),
            mode="markers",
            marker={"color": layer.colour, "size": size, "opacity": 0.7},
            hoverinfo="name",
            showlegend=False,
        )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False, scaleanchor="x")
    figure.update_layout(hoverlabel={"namelength": -1}, margin_t=40)
    table = [{by: layer.name, "documents on the map": len(layer.points_P)} for layer in view.layers]
    return Chart(figure, _title(by), _words(view, by), table)


def legend(view: ClusterMap) -> str:
    """HTML of the legend. Not Plotly's own: a click there would hide points that an area still takes."""
    chips = [
        f'<span style="white-space:nowrap;margin-right:14px"><span style="color:{layer.colour}">●</span> '
        f"{html.escape(layer.name)} {len(layer.points_P):,}</span> "
        for layer in view.layers
    ]
    return f'<div style="font-size:0.85rem;line-height:1.7">{"".join(chips)}</div>'


def _title(by: By) -> str:
    if by == "cluster":
        return (
            "Map by cluster: similar documents lie together; look for groups with two colours or no colour of their own"
        )
    return "Map by domain: a group of one colour is one domain, a group of several colours mixes domains"


def _words(view: ClusterMap, by: By) -> str:
    rest = view.card.metrics["map"]["num_points"] - view.num_fitted
    fitted = f"UMAP shaped the map by {pluralize(view.num_fitted, 'document')} (seed {view.seed})"
    between = f" and put the other {rest:,} in between." if rest > 0 else "."
    largest = max(view.layers, key=lambda layer: len(layer.points_P), default=None)
    most = f"; most belong to {largest.name} ({len(largest.points_P):,})" if largest else ""
    return (
        f"Map of {pluralize(view.num_points, 'document')} of {view.card.num_documents:,} in {len(view.layers)} "
        f"{by}s{most}. {fitted}{between} Only nearness has a meaning; the distance between two groups, their "
        "size and their direction have none."
    )


def _places(points_P: NDArray[Any]) -> NDArray[np.float32]:
    return np.stack([points_P["x"], points_P["y"]], axis=1)
