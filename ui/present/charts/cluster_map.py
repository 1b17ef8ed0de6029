"""The map of a clustering, drawn by the graphics card: 8 bytes a point, and above 200,000 a picture of the density.

Shapes: P points, D drawn points.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.clusters.map_polygons import lies_in_any
from ui.present.charts.colours import Looks, of_clusters
from ui.present.charts.map_density import density_cells, density_lines
from ui.present.text.formatting import pluralize
from workbench.answers.cards import ClusteringCard
from workbench.formatting.chart_template import ACCENT, CaptionedChart, heat_scale, new_figure
from workbench.formatting.number_format import full_label, label, nats
from workbench.formatting.palette import GREY
from workbench.kinds.data import MakeDomain
from workbench.registry.clusters.cluster_documents import POINT, MapPoints

By = Literal["cluster", "domain", "expert", "loss"]
MOST_DRAWN = 200_000  # points; of more a sample is drawn over a picture of the density of all
SAMPLE = 50_000
NO_EXPERT, UNSCORED, SCORED, MATCHES = "no expert yet", "not scored", "held-out documents", "matches"
_HEIGHT = 430
_SIZES = ((2_000, 7), (20_000, 4))  # pixels of a point while there are fewer
_SMALLEST = 3
_DIMMED, _PLAIN = 0.12, 0.7  # opacity of points, with and without matches over them
_NAMES = 40  # on the map, of the largest clusters
_LETTER, _LINE = 7.0, 20.0  # pixels of a name on the map
_IN_LEGEND = "display:inline-block;max-width:100%;overflow-wrap:anywhere;margin-right:14px"  # long names wrap
_WIDTH = 1000  # pixels of the map, about
_CENTRAL, _MARGIN = (1, 99), 0.1  # percentiles within the limits, and how much of their span is added


@dataclass(frozen=True)
class Layer:
    """The points of one colour: their place on the map and their document's number; `drawn_D` are those drawn.

    With `values_P` each point has a colour of its own on a scale.
    """

    name: str
    colour: str
    points_P: NDArray[Any]  # of dtype POINT
    drawn_D: NDArray[np.intp] | None = None  # None: all
    values_P: NDArray[np.float32] | None = None

    @property
    def drawn(self) -> NDArray[Any]:
        """The points that are drawn."""
        return self.points_P if self.drawn_D is None else self.points_P[self.drawn_D]


@dataclass(frozen=True)
class ClusterMap:
    """The map as shown: coloured in one of several manners, with all clusters or a selection."""

    card: ClusteringCard
    layers: list[Layer]
    num_fitted: int
    seed: int
    matches: Layer | None = None  # points of a search, drawn over the others

    @property
    def num_points(self) -> int:
        return sum(len(layer.points_P) for layer in self.layers)

    @property
    def is_dense(self) -> bool:
        """Whether only a sample of the points is drawn."""
        return any(layer.drawn_D is not None for layer in self.layers)

    @cached_property
    def points_P(self) -> NDArray[Any]:
        """All points, whatever their layer."""
        return np.concatenate([layer.points_P for layer in self.layers] or [np.empty(0, dtype=POINT)])

    @cached_property
    def limits(self) -> tuple[list[float], list[float]]:
        """The least and largest x and y of the first view: around the central 98 %, so that outliers do not set it."""
        return _limits(self.points_P["x"]), _limits(self.points_P["y"])

    @cached_property
    def num_outside(self) -> int:
        """The number of documents outside the limits."""
        is_outside_P = np.zeros(self.num_points, dtype=np.bool_)
        for axis, (low, high) in zip("xy", self.limits, strict=True):
            is_outside_P |= (self.points_P[axis] < low) | (self.points_P[axis] > high)
        return int(is_outside_P.sum())

    def document(self, layer: int, point: int) -> int | None:
        """The number of the document at a drawn point; None when the map has other points by now."""
        layers = [*self.layers, *([self.matches] if self.matches else [])]
        if layer < len(layers) and point < len(layers[layer].drawn):
            return int(layers[layer].drawn["document"][point])
        return None

    def points_inside(self, areas: Sequence[str], clusters: Sequence[str] = ()) -> NDArray[Any]:
        """The points in the areas, or without any in the clusters of these names."""
        if areas:
            corners = MakeDomain(clustering=self.card.name, name="counted", areas=list(areas)).corners
            inside = [layer.points_P[lies_in_any(_places(layer.points_P), corners)] for layer in self.layers]
        else:
            numbers = [cluster.number for cluster in self.card.clusters if cluster.name in clusters]
            inside = [self.points_P[np.isin(self.points_P["cluster"], numbers)]]
        return np.concatenate([np.empty(0, dtype=POINT), *inside])

    def num_inside(self, areas: Sequence[str]) -> int:
        """The number of documents in the areas, which are given as in the spec of a domain made from them."""
        return len(self.points_inside(areas))

    def largest_inside(self, areas: Sequence[str]) -> int | None:
        """The number of the cluster that most documents in the areas belong to; None where there are none."""
        clusters = self.points_inside(areas)["cluster"]
        return int(np.bincount(clusters).argmax()) if len(clusters) else None


def cluster_map(
    card: ClusteringCard,
    chart: MapPoints,
    looks: Looks,
    by: By = "cluster",
    only: Sequence[str] = (),
    *,
    losses_N: NDArray[np.float32] | None = None,
    matching: NDArray[np.int64] | None = None,
) -> ClusterMap:
    """The map with a layer for each colour; `only` names the clusters shown, none of them means all.

    `losses_N` are those of all documents, for the colours of losses; `matching` are documents to point out.
    """
    points_P = np.frombuffer(chart.points, dtype=POINT)
    if only:
        points_P = points_P[np.isin(points_P["cluster"], [c.number for c in card.clusters if c.name in only])]
    layers = [layer for layer in _layers(by, card, points_P, looks, losses_N) if len(layer.points_P)]
    if len(points_P) > MOST_DRAWN:
        layers = [_sample_layer(layer, len(points_P)) for layer in layers]
    matches = None
    if matching is not None:
        matched_P = points_P[np.isin(points_P["document"], matching)]
        matches = _sample_layer(Layer(MATCHES, ACCENT, matched_P), max(len(matched_P), 1))
    return ClusterMap(card, layers, chart.num_fitted, chart.seed, matches)


def _sample_layer(layer: Layer, num_points: int) -> Layer:
    """The layer with its share of the drawn points; itself while all fit into the sample."""
    share = SAMPLE / num_points
    if share >= 1:
        return layer
    number = min(len(layer.points_P), math.ceil(len(layer.points_P) * share))
    drawn_D = np.sort(np.random.default_rng(0).choice(len(layer.points_P), number, replace=False))
    return Layer(layer.name, layer.colour, layer.points_P, drawn_D, layer.values_P)


def _layers(
    by: By, card: ClusteringCard, points_P: NDArray[Any], looks: Looks, losses_N: NDArray[np.float32] | None
) -> Iterator[Layer]:
    """A layer for each colour; of the experts that were trained on a point's cluster the last one counts."""
    if by == "cluster":
        by_name = of_clusters(card.clusters, looks)
        for number, cluster in enumerate(card.clusters):
            yield Layer(cluster.name, by_name[cluster.name].colour, points_P[points_P["cluster"] == number])
    elif by == "domain":
        for number, name in enumerate(card.sources):
            yield Layer(name, looks.domain(name).colour, points_P[points_P["source"] == number])
    elif by == "expert":
        numbers: dict[str, list[int]] = {}
        for number, cluster in enumerate(card.clusters):
            numbers.setdefault(cluster.experts[-1] if cluster.experts else NO_EXPERT, []).append(number)
        for name, clusters in sorted(numbers.items(), key=lambda pair: pair[0] == NO_EXPERT):
            colour = GREY if name == NO_EXPERT else looks.expert(name).colour
            yield Layer(name, colour, points_P[np.isin(points_P["cluster"], clusters)])
    else:
        values_P = np.full(len(points_P), np.nan, np.float32) if losses_N is None else losses_N[points_P["document"]]
        is_scored_P = np.isfinite(values_P)
        yield Layer(UNSCORED, GREY, points_P[~is_scored_P])
        yield Layer(SCORED, ACCENT, points_P[is_scored_P], values_P=values_P[is_scored_P])


def _limits(values_P: NDArray[np.float32]) -> list[float]:
    """Around the central values; never beyond the least and the largest."""
    if not len(values_P):
        return [0.0, 1.0]
    low, high = np.percentile(values_P, _CENTRAL).tolist()
    margin = _MARGIN * (high - low) or 1.0
    return [max(low - margin, float(values_P.min())), min(high + margin, float(values_P.max()))]


def map_picture(view: ClusterMap, by: By, *, has_names: bool = False, has_density: bool = False) -> CaptionedChart:
    """The map as a chart, what to read in it, and a row for each layer.

    With `has_names` clusters are named on it, in a map by loss with their mean; with `has_density` lines stand around
    where many documents lie.
    """
    figure = new_figure("", "", height=_HEIGHT)
    size = next((pixels for most, pixels in _SIZES if view.num_points < most), _SMALLEST)
    for layer in view.layers:
        is_dimmed = view.matches is not None or layer.name == UNSCORED
        figure.add_scattergl(**_trace(layer, size, _DIMMED if is_dimmed else _PLAIN))
    if view.matches:
        figure.add_scattergl(**_trace(view.matches, size + 3, 0.95))
    if view.is_dense:
        figure.add_heatmap(**density_cells(view.points_P))
    elif has_density and view.num_points:
        figure.add_contour(**density_lines(view.points_P, view.limits))
    x_range, y_range = view.limits if view.num_outside else (None, None)
    figure.update_xaxes(visible=False, range=x_range)
    figure.update_yaxes(visible=False, range=y_range, scaleanchor="x")
    figure.update_layout(margin_t=40, showlegend=False)
    if has_names:
        means = mean_losses(view)
        figure.update_layout(annotations=[_name(name, at, means.get(name)) for name, at in names_on_map(view)])
    table = [_row(layer, by) for layer in view.layers]
    return CaptionedChart(figure, _title(view, by), _words(view, by), table)


def _name(name: str, position: Sequence[float], mean: float | None) -> dict[str, Any]:
    style = {"font": {"size": 12, "color": "#1f1d1a"}, "bgcolor": "rgba(255,253,248,0.86)", "borderpad": 2}
    text = label(name, 24) if mean is None else f"{label(name, 24)} {mean:.2f}"
    return {"text": text, "x": position[0], "y": position[1], "showarrow": False, **style}


def mean_losses(view: ClusterMap) -> dict[str, float]:
    """The mean loss of the scored documents of each cluster on the map, by its name; empty unless coloured by loss."""
    scored = [layer for layer in view.layers if layer.values_P is not None]
    clusters = np.concatenate([layer.points_P["cluster"] for layer in scored] or [np.empty(0, np.int32)])
    losses = np.concatenate(
        [layer.values_P for layer in scored if layer.values_P is not None] or [np.empty(0, np.float32)]
    )
    return {view.card.clusters[int(one)].name: float(losses[clusters == one].mean()) for one in np.unique(clusters)}


def _trace(layer: Layer, size: int, opacity: float) -> dict[str, Any]:
    drawn_D = layer.drawn
    marker: dict[str, Any] = {"color": layer.colour, "size": size, "opacity": opacity}
    trace: dict[str, Any] = {
        "x": np.ascontiguousarray(drawn_D["x"]),
        "y": np.ascontiguousarray(drawn_D["y"]),
        "name": full_label(layer.name),
        "mode": "markers",
        "hoverinfo": "name",
        "showlegend": False,
    }
    if layer.values_P is not None:
        values_D = layer.values_P if layer.drawn_D is None else layer.values_P[layer.drawn_D]
        low, high = np.percentile(layer.values_P, (2, 98)).tolist()
        marker |= {
            "color": np.ascontiguousarray(values_D),
            "cmin": low,
            "cmax": high,
            "colorscale": heat_scale(is_low_better=True),
            "size": size + 3,
            "line": {"width": 1, "color": GREY},  # the lightest colour is nearly that of the page
            "colorbar": {"title": {"text": "nats/token"}, "thickness": 12},
        }
        trace |= {"hoverinfo": None, "hovertemplate": "%{marker.color:.3f} nats/token<extra></extra>"}
    return trace | {"marker": marker}


def names_on_map(view: ClusterMap) -> Iterator[tuple[str, tuple[float, float]]]:
    """The names of the largest clusters at their medians; a name that would cover a larger cluster's is left out."""
    points_P = view.points_P
    if not len(points_P):
        return
    spread = [high - low or 1.0 for low, high in view.limits]
    pixel = max(spread[0] / _WIDTH, spread[1] / _HEIGHT)  # both axes have one scale
    order = np.argsort(points_P["cluster"], kind="stable")
    numbers, starts, counts = np.unique(points_P["cluster"][order], return_index=True, return_counts=True)
    taken: list[tuple[float, float, float, float]] = []
    for rank in np.argsort(-counts, kind="stable")[:_NAMES].tolist():
        own = points_P[order[starts[rank] : starts[rank] + counts[rank]]]
        x, y = float(np.median(own["x"])), float(np.median(own["y"]))
        name = view.card.clusters[int(numbers[rank])].name
        half = (min(len(name), 24) * _LETTER / 2 * pixel, _LINE / 2 * pixel)
        box = (x - half[0], x + half[0], y - half[1], y + half[1])
        if not any(_overlap(box, other) for other in taken):
            taken.append(box)
            yield name, (x, y)


def _overlap(box: tuple[float, float, float, float], taken: tuple[float, float, float, float]) -> bool:
    return box[0] < taken[1] and taken[0] < box[1] and box[2] < taken[3] and taken[2] < box[3]


def legend(view: ClusterMap) -> str:
    """HTML of the legend. Not Plotly's own: a click there would hide points that an area still takes."""
    layers = [*view.layers, *([view.matches] if view.matches else [])]
    chips = [
        f'<span style="{_IN_LEGEND}"><span style="color:{layer.colour}">●</span> '
        f"{html.escape(layer.name)} {len(layer.points_P):,}</span> "
        for layer in layers
    ]
    return f'<div style="font-size:0.85rem;line-height:1.7">{"".join(chips)}</div>'


def _row(layer: Layer, by: By) -> dict[str, Any]:
    row: dict[str, Any] = {by: layer.name, "documents on the map": len(layer.points_P)}
    if by != "loss":
        return row
    return row | {"median loss (nats/token)": None if layer.values_P is None else float(np.median(layer.values_P))}


_TITLES: Mapping[By, str] = {
    "cluster": "Map by cluster: similar documents lie together; look for groups with two colours or no colour of "
    "their own",
    "domain": "Map by domain: a group of one colour is one domain, a group of several colours mixes domains",
    "expert": "Map by expert: each colour is what one expert was trained on; grey has none yet",
}


def _title(view: ClusterMap, by: By) -> str:
    if by != "loss":
        return _TITLES[by]
    scored = next((layer.values_P for layer in view.layers if layer.values_P is not None), None)
    if scored is None:
        return "Map by loss: no document on it is scored"
    low, high = np.percentile(scored, (10, 90)).tolist()
    return f"Map by loss: from {nats(low)} to {nats(high)} for most documents; look for light areas, badly predicted"


def _words(view: ClusterMap, by: By) -> str:
    rest = view.card.metrics["map"]["num_points"] - view.num_fitted
    fitted = f"UMAP shaped the map by {pluralize(view.num_fitted, 'document')} (seed {view.seed})"
    between = f" and put the other {rest:,} in between." if rest > 0 else "."
    largest = max(view.layers, key=lambda layer: len(layer.points_P), default=None)
    is_named = largest is not None and largest.name not in (NO_EXPERT, UNSCORED, SCORED)
    share = len(largest.points_P) / view.num_points if largest and view.num_points else 0.0
    most = f"; the largest is {largest.name} with {share:.0%} of them" if largest and is_named else ""
    number = sum(len(layer.drawn) for layer in view.layers)
    dense = f" Grey shows the density of all, and {number:,} sampled points are drawn; an area takes all in it."
    groups = _groups(view, by)
    outside = (
        f" {pluralize(view.num_outside, 'document')} lie{'s' * (view.num_outside == 1)} outside the limits, which the "
        "central 98 % set; “Autoscale” in the toolbar shows all."
        if view.num_outside
        else ""
    )
    return (
        f"Map of {pluralize(view.num_points, 'document')} of {view.card.num_documents:,} {groups}{most}. "
        f"{fitted}{between}{dense if view.is_dense else ''}{outside} Only nearness has a meaning; the "
        "distance between two groups, their size and their direction have none."
    )


def _groups(view: ClusterMap, by: By) -> str:
    if by == "loss":
        number = sum(len(layer.points_P) for layer in view.layers if layer.values_P is not None)
        return f"with {number:,} that have a loss"
    if by == "expert":
        named = [layer for layer in view.layers if layer.name != NO_EXPERT]
        return f"with {sum(len(layer.points_P) for layer in named):,} that trained {pluralize(len(named), 'expert')}"
    return f"in {len(view.layers)} {by}s"


def _places(points_P: NDArray[Any]) -> NDArray[np.float32]:
    return np.stack([points_P["x"], points_P["y"]], axis=1)
