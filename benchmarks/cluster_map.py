"""Claim: a map of a million documents is sent to the browser as no more bytes than one of 100,000, which are all drawn.

Above 200,000 points the map is a picture of their density under a sample; an area still takes every point in it, which
is counted here against NumPy. Points of 32 heaps, drawn at random; one thread.
Run: python benchmarks/cluster_map.py
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from harness.benchmark import Figure, Options, report
from ui.present.charts.cluster_map import cluster_map, map_picture
from ui.present.charts.colours import Looks
from workbench.answers.cards import ClusterCard, ClusteringCard
from workbench.registry.clusters.cluster_documents import POINT, MapPoints

SIZES = {"points": ([100_000, 200_000, 1_000_000], [2_000, 201_000]), "times": (9, 2)}
NUM_CLUSTERS = 32
BOX = "0 -99 99 -99 99 99 0 99"
LASSO = " ".join(f"{9 * np.cos(angle):.3f} {9 * np.sin(angle):.3f}" for angle in np.linspace(0, 6.2, 100))


def card_of(num_points: int) -> ClusteringCard:
    """The card of a clustering of so many documents."""
    clusters = [
        ClusterCard(
            id=str(number),
            number=number,
            name=f"cluster {number}",
            num_documents=num_points // NUM_CLUSTERS,
            terms=["word"],
            representatives=[],
            domain=None,
            stale=False,
            experts=[],
            notes="",
        )
        for number in range(NUM_CLUSTERS)
    ]
    return ClusteringCard(
        id="c",
        name="c",
        config={},
        sources=["text"],
        num_documents=num_points,
        num_fitted=20_000,
        metrics={"map": {"num_points": num_points, "num_fitted": 20_000, "seed": 0}},
        seed=None,
        clusters=clusters,
        stale_experts=[],
        size_bytes=0,
        job_id=None,
        created_at=0.0,
    )


def points_of(num_points: int) -> Any:
    """Points around the centres of the clusters, which lie on a circle."""
    draw = np.random.default_rng(0)
    points_P = np.empty(num_points, dtype=POINT)
    points_P["document"], points_P["source"] = np.arange(num_points), 0
    points_P["cluster"] = draw.integers(0, NUM_CLUSTERS, num_points)
    angles_P = 2 * np.pi * points_P["cluster"] / NUM_CLUSTERS
    points_P["x"] = 8 * np.cos(angles_P) + draw.normal(0, 1, num_points)
    points_P["y"] = 8 * np.sin(angles_P) + draw.normal(0, 1, num_points)
    return points_P


def measure(num_points: int, times: int) -> dict[str, Any]:
    """Bytes of the figure, and the medians of the seconds of its making and of two areas."""
    card, points_P = card_of(num_points), points_of(num_points)
    chart = MapPoints(num_points, 20_000, 0, points_P.tobytes())
    seconds: dict[str, list[float]] = {"figure": [], "box": [], "lasso of 100 corners": []}
    for _ in range(times):
        began = time.perf_counter()
        view = cluster_map(card, chart, Looks())
        sent = map_picture(view, "cluster", has_names=True).figure.to_json()
        seconds["figure"].append(time.perf_counter() - began)
        for name, area in (("box", BOX), ("lasso of 100 corners", LASSO)):
            began = time.perf_counter()
            inside = view.num_inside([area])
            seconds[name].append(time.perf_counter() - began)
            assert name != "box" or inside == int((points_P["x"] > 0).sum())
    return {
        "points": num_points,
        "drawn": sum(len(layer.drawn) for layer in view.layers),
        "bytes": len(sent),
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
    }


def main() -> None:
    options = Options(__doc__, SIZES).parse_args()
    rows = [measure(number, options.times) for number in options.points]
    ratio = rows[-1]["bytes"] / rows[0]["bytes"]
    report(options, [Figure("bytes of the largest map over the smallest", [ratio], at_most=1)], maps=rows)


if __name__ == "__main__":
    main()
