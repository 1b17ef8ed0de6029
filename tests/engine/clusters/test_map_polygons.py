"""An area drawn by hand holds what lies within its outline."""

from __future__ import annotations

import numpy as np

from engine.clusters.map_polygons import lies_in, lies_in_any

SQUARE = [(0.0, 0.0), (0.0, 2.0), (2.0, 2.0), (2.0, 0.0)]
ARROW = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (2.0, 1.0), (0.0, 4.0)]  # a notch from above


def points(*pairs: tuple[float, float]) -> np.ndarray:
    return np.array(pairs, dtype=np.float32)


def test_a_point_is_inside_or_outside() -> None:
    assert lies_in(points((1, 1), (3, 1), (-1, 1), (1, 3)), SQUARE).tolist() == [True, False, False, False]


def test_a_notch_is_outside() -> None:
    assert lies_in(points((2, 3), (0.5, 2), (3.5, 2), (2, 0.5)), ARROW).tolist() == [False, True, True, True]


def test_where_an_outline_crosses_itself_the_overlap_is_outside() -> None:
    twice = [*SQUARE, (0.0, 0.0), (0.0, 2.0), (2.0, 2.0), (2.0, 0.0)]
    assert not lies_in(points((1, 1)), twice).any()


def test_several_areas_hold_what_one_of_them_holds() -> None:
    other = [(x + 10, y) for x, y in SQUARE]
    assert lies_in_any(points((1, 1), (11, 1), (5, 1)), [SQUARE, other]).tolist() == [True, True, False]
    assert not lies_in_any(points((1, 1)), []).any()


def test_it_agrees_with_another_method() -> None:
    draw = np.random.default_rng(0)
    cloud = draw.uniform(-1, 1, (5000, 2)).astype(np.float32)
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    circle = list(zip(np.cos(angles).tolist(), np.sin(angles).tolist(), strict=True))
    radius = np.hypot(*cloud.T)
    clear = np.abs(radius - 1) > 1e-3  # the outline has corners
    assert lies_in(cloud, circle)[clear].tolist() == (radius < 1)[clear].tolist()
