"""Points of curves as CSV, one row each, which spreadsheets and pandas read."""

from __future__ import annotations

from collections.abc import Iterable

from ui.present.csv_text import csv_text
from workbench.analysis.training_curves import MetricValue

HEADER = csv_text([], list(MetricValue.model_fields))


def csv_rows(points: Iterable[MetricValue]) -> str:
    """The rows without the header; every number as it was measured, to the last digit."""
    return csv_text(list(point.model_dump().values()) for point in points)
