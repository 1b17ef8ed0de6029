"""CSV text, safe to open in a spreadsheet: the only place of the code that writes it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from itertools import chain
from typing import Any

# What a spreadsheet takes for the start of a formula, also in full width: OWASP, "CSV Injection".
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_text(rows: Iterable[Sequence[Any]], header: Sequence[str] = ()) -> str:
    """The header, if one is given, and the rows; a text that a spreadsheet would run as a formula is quoted as text."""
    return "".join(map(_line, rows if not header else chain([header], rows)))


def _line(row: Sequence[Any]) -> str:
    text = StringIO()
    csv.writer(text).writerow([_safe(cell) for cell in row])  # with its own line end it quotes both \r and \n
    return text.getvalue().removesuffix("\r\n") + "\n"


def _safe(cell: Any) -> Any:
    """The cell as it is, or with an apostrophe before it. Numbers keep their sign."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell
