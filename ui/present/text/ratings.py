"""Ratings as text and as CSV: a number, its interval, and a dash where the votes say neither."""

from __future__ import annotations

from ui.present.csv_text import csv_text
from workbench.analysis.ratings import Rating, RatingTables
from workbench.formatting.number_format import DASH


def rating_text(row: Rating) -> str:
    """The rating without decimals, such as 1,043."""
    return DASH if row.rating is None else f"{row.rating:,.0f}"


def interval_text(row: Rating) -> str:
    """The interval, such as 1,004–1,081; a bound that the votes do not give is described."""
    if row.rating is None:
        return DASH
    if row.low is None and row.high is None:
        return "no bound"
    if row.low is None:
        return f"at most {row.high:,.0f}"
    return f"at least {row.low:,.0f}" if row.high is None else f"{row.low:,.0f}–{row.high:,.0f}"


HEADER = ("domain", *Rating.model_fields)


def ratings_csv(answer: RatingTables) -> str:
    """The header and the rows; every number to the last digit, and an empty field where there is none."""
    rows = ([table.domain, *row.model_dump().values()] for table in answer.tables for row in table.rows)
    return csv_text(rows, HEADER)
