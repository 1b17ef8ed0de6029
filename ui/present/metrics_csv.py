"""Points of curves as CSV, one row each, which spreadsheets and pandas read."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO

from workbench.answers.metrics import MetricValue

HEADER = ",".join(MetricValue.model_fields) + "\n"


def csv_rows(points: Iterable[MetricValue]) -> str:
    """The rows without the header; every number as it was measured, to the last digit."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(point.model_dump().values() for point in points)
    return text.getvalue()
