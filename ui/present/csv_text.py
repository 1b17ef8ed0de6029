"""CSV text, safe to open in a spreadsheet: the only module that writes it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from itertools import chain
from typing import Any

from workbench.analysis.training_curves import MetricValue

# What a spreadsheet takes for the start of a formula, also in full width: OWASP, "CSV Injection".
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_text(rows: Iterable[Sequence[Any]], header: Sequence[str] = ()) -> str:
    """The header, if one is given, and the rows; a text that a spreadsheet would run as a formula is quoted as text."""
    return "".join(map(_line, rows if not header else chain([header], rows)))


def _line(row: Sequence[Any]) -> str:
    text = StringIO()
    # Numbers keep their sign. With the writer's own line end it quotes both \r and \n.
    safe = [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell for cell in row]
    csv.writer(text).writerow(safe)
    return text.getvalue().removesuffix("\r\n") + "\n"


HEADER = csv_text([], list(MetricValue.model_fields))


def csv_rows(points: Iterable[MetricValue]) -> str:
    """The rows without the header; every number as it was measured, to the last digit."""
    return csv_text(list(point.model_dump().values()) for point in points)
