"""Ratings as CSV, one row for each model of each table."""

from __future__ import annotations

from ui.present.csv_text import csv_text
from workbench.analysis.ratings import Rating, RatingTables

HEADER = ("domain", *Rating.model_fields)


def ratings_csv(answer: RatingTables) -> str:
    """The header and the rows; every number to the last digit, and an empty field where there is none."""
    rows = ([table.domain, *row.model_dump().values()] for table in answer.tables for row in table.rows)
    return csv_text(rows, HEADER)
