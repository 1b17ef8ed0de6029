"""Where the documents of a map lie densely: as cells where only a sample of the points is drawn, else as lines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.formatting.palette import GREY

_CELLS = 256  # of the density, in each direction
_DENSITY = ("rgba(138,134,127,0.05)", "rgba(138,134,127,0.75)")  # on both themes
_LINES, _LINE_CELLS, _SMOOTHED = 6, 96, 1.6  # of the density: lines, cells in each direction, and their blur


def density_cells(points_P: NDArray[Any]) -> dict[str, Any]:
    """The number of points in each cell, as its logarithm; empty cells are left clear."""
    counts, x_edges, y_edges = np.histogram2d(points_P["x"], points_P["y"], bins=_CELLS)
    with np.errstate(divide="ignore"):
        logs = np.where(counts.T > 0, np.log1p(counts.T), np.nan).astype(np.float32)
    steps = (x_edges[1] - x_edges[0], y_edges[1] - y_edges[0])
    return {
        "z": logs,
        "x0": x_edges[0] + steps[0] / 2,
        "dx": steps[0],
        "y0": y_edges[0] + steps[1] / 2,
        "dy": steps[1],
        "colorscale": [(0, _DENSITY[0]), (1, _DENSITY[1])],
        "showscale": False,
        "hoverinfo": "skip",
    }


def density_lines(points_P: NDArray[Any], limits: tuple[list[float], list[float]]) -> dict[str, Any]:
    """Lines of equal density around where most documents lie, from blurred counts within the limits."""
    from scipy.ndimage import gaussian_filter  # imported late: only maps need it

    x, y = points_P["x"], points_P["y"]
    counts, x_edges, y_edges = np.histogram2d(x, y, bins=_LINE_CELLS, range=limits)
    density = gaussian_filter(counts.T, _SMOOTHED).astype(np.float32)
    top, steps = float(density.max()), (x_edges[1] - x_edges[0], y_edges[1] - y_edges[0])
    return {
        "z": density,
        "x0": x_edges[0] + steps[0] / 2,
        "dx": steps[0],
        "y0": y_edges[0] + steps[1] / 2,
        "dy": steps[1],
        "autocontour": False,
        "contours": {"coloring": "lines", "start": top / _LINES, "end": top, "size": top / _LINES},
        "colorscale": [(0, GREY), (1, GREY)],
        "line": {"width": 1},
        "opacity": 0.55,
        "showscale": False,
        "hoverinfo": "skip",
    }
