"""What a spreadsheet opens never runs, whoever wrote the names and texts in it."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from ui.playground.grid import grid_csv
from ui.present.csv_text import FORMULA_STARTS, HEADER, csv_rows, csv_text
from ui.present.text.ratings import ratings_csv
from ui.widgets.charts_and_tables import as_csv
from workbench.analysis.ratings import Rating, RatingTable, RatingTables
from workbench.analysis.training_curves import MetricValue

ROOT = Path(__file__).parents[3]
GUARD = "ui/present/csv_text.py"
WRITERS = {"writer", "DictWriter"}


def rating(model: str) -> Rating:
    return Rating(
        label=model, model=model, num_votes=0, wins=0, losses=0, ties=0, rating=None, low=None, high=None, why=model
    )


def written(text: str) -> list[str]:
    return [cell for row in csv.reader(StringIO(text, newline="")) for cell in row]


@pytest.mark.parametrize("start", FORMULA_STARTS)
def test_no_cell_of_any_csv_starts_as_a_formula(start: str) -> None:
    bad = f"{start}1+1"
    table = RatingTable.model_construct(domain=bad, rows=[rating(bad)])
    point = MetricValue(metric=bad, step=1, value=1.0, unit=bad)
    files = [
        csv_text([[bad]], [bad]),
        grid_csv([bad], [bad], {(0, 0): bad}),
        ratings_csv(RatingTables.model_construct(tables=[table])),
        HEADER + csv_rows([point]),
        as_csv([{bad: bad}]),
    ]
    for text in files:
        cells = written(text)
        assert f"'{bad}" in cells
        assert not [cell for cell in cells if cell.startswith(FORMULA_STARTS)]


def test_numbers_and_other_texts_stay_as_they_are() -> None:
    assert written(csv_text([[-1.5, "a=b", "it's", None, True]])) == ["-1.5", "a=b", "it's", "", "True"]


def csv_writers(source: str) -> Iterator[str]:
    """The places of a module that write CSV by themselves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "csv":
            yield from (name.name for name in node.names if name.name in {*WRITERS, "*"})
        elif isinstance(node, ast.Import):
            yield from (f"csv as {name.asname}" for name in node.names if name.name == "csv" and name.asname)
        elif isinstance(node, ast.Attribute) and node.attr in {"to_csv", "write_csv"}:
            yield node.attr
        elif isinstance(node, ast.Attribute) and node.attr in WRITERS and ast.unparse(node.value) == "csv":
            yield f"csv.{node.attr}"


def test_only_one_module_writes_csv() -> None:
    packages = ("engine", "workbench", "jobs", "ui", "studies")
    modules = [file for package in packages for file in (ROOT / package).rglob("*.py")]
    result = {str(file.relative_to(ROOT)): list(csv_writers(file.read_text(encoding="utf-8"))) for file in modules}
    assert {name: what for name, what in result.items() if what} == {GUARD: ["csv.writer"]}


@pytest.mark.parametrize(
    "source",
    ["csv.writer(f)", "csv.DictWriter(f, names)", "from csv import writer", "import csv as c", "frame.to_csv(f)"],
)
def test_the_test_sees_writers(source: str) -> None:
    assert list(csv_writers(source))


def test_every_answer_of_csv_goes_through_the_guard() -> None:
    """A module that says `text/csv` or a file name of CSV makes its text by a function of the modules above."""
    makers = {"csv_text", "csv_rows", "ratings_csv", "grid_csv", "as_csv"}
    for file in (ROOT / "ui").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        is_csv = any(
            isinstance(node, ast.keyword)
            and node.arg in {"mime", "media_type"}
            and isinstance(node.value, ast.Constant)
            and node.value.value == "text/csv"
            for node in ast.walk(tree)
        )
        called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "id")}
        assert not is_csv or called & makers, file
