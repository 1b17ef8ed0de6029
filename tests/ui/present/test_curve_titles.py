"""The title of curves says whether more updates help."""

from __future__ import annotations

import pytest

from ui.present.charts.colours import Looks
from ui.present.charts.curves_and_bars import curves
from workbench.answers.cards import MetricPoint

NO_LOOKS = Looks()
UNIT = "nats/token"
AGAIN = "more updates make it worse"
LEARNS = "a falling line is still learning"


def title(kind: str, **lines: list[float]) -> str:
    points = [
        MetricPoint(name=name, step=step, value=loss) for name, line in lines.items() for step, loss in enumerate(line)
    ]
    chart = curves(points, kind, "a job", NO_LOOKS)
    assert chart is not None
    return chart.title


@pytest.mark.parametrize(
    ("kind", "lines", "expected"),
    [
        ("Held-out loss", {"law": [4.0], "sea": [5.0]}, "Held-out loss"),
        ("Held-out loss", {"law": [4.0, 3.0], "sea": [5.0, 4.0]}, f"Held-out loss fell on 2 of 2 lines: {LEARNS}"),
        (
            "Held-out loss",
            {"law": [4.0, 3.0], "sea": [5.0, 3.0, 4.0]},
            f"Held-out loss fell on 2 of 2 lines, but has risen again on sea: {AGAIN}",
        ),
        (
            "Held-out loss",
            {"law": [4.0, 3.0, 3.01]},
            f"Held-out loss fell from 4.00 {UNIT} to 3.01 {UNIT}: {LEARNS}",
        ),
        (
            "Held-out loss",
            {"law": [4.0, 3.0, 3.5]},
            f"Held-out loss fell from 4.00 {UNIT} to 3.50 {UNIT}, but has risen again: {AGAIN}",
        ),
        (
            "Training loss",
            {"law": [4.0, 2.0, 3.0]},
            f"Training loss fell from 4.00 {UNIT} to 3.00 {UNIT}: {LEARNS}",
        ),
    ],
)
def test_held_out_loss_that_has_passed_its_lowest_is_not_still_learning(
    kind: str, lines: dict[str, list[float]], expected: str
) -> None:
    assert title(kind, **lines) == expected
