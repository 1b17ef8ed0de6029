"""Ratings as CSV, one row for each model of each table."""

from __future__ import annotations

import csv
from io import StringIO

from workbench.answers.ratings import Rating, RatingTables

HEADER = ",".join(["domain", *Rating.model_fields]) + "\n"


def ratings_csv(answer: RatingTables) -> str:
    """The header and the rows; every number to the last digit, and an empty field where there is none."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for table in answer.tables:
        writer.writerows([table.domain, *row.model_dump().values()] for row in table.rows)
    return HEADER + text.getvalue()
