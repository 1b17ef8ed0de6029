"""Tests which points of a map lie in polygons drawn by hand.

Shapes: P points, C corners.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Corners = Sequence[tuple[float, float]]


def lies_in_any(points_P2: NDArray[np.float32], areas: Iterable[Corners]) -> NDArray[np.bool_]:
    """True for points in at least one area."""
    is_inside_P = np.zeros(len(points_P2), dtype=np.bool_)
    for corners in areas:
        is_inside_P |= lies_in(points_P2, corners)
    return is_inside_P


def lies_in(points_P2: NDArray[np.float32], corners: Corners) -> NDArray[np.bool_]:
    """True for points in a polygon, whose last corner is joined to its first.

    A point is inside when a ray from it crosses the outline an odd number of times, so that where an outline crosses
    itself the overlap is outside, as on the screen.
    """
    corners_C2 = np.asarray(corners, dtype=np.float64)
    near = np.flatnonzero(((points_P2 >= corners_C2.min(0)) & (points_P2 <= corners_C2.max(0))).all(1))
    x, y = points_P2[near].astype(np.float64).T
    is_odd = np.zeros(len(near), dtype=np.bool_)
    for (x0, y0), (x1, y1) in zip(corners_C2, np.roll(corners_C2, -1, axis=0), strict=True):
        if y0 != y1:  # a level edge is crossed by no ray
            is_odd ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    is_inside_P = np.zeros(len(points_P2), dtype=np.bool_)
    is_inside_P[near[is_odd]] = True
    return is_inside_P
