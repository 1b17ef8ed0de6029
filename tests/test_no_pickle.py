"""No file can run code when it is read: nothing that ships unpickles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
LOADS = {"torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"}


def unpickling(source: str) -> Iterator[str]:
    """What of a module's source could unpickle, or run code of a model's own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.split(".")[0] in PICKLES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] in PICKLES:
                yield node.module
            yield from (one.name for one in node.names if f"{node.module}.{one.name}" in LOADS)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in LOADS:
            yield ast.unparse(node)
        elif isinstance(node, ast.keyword):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            if node.arg in ("allow_pickle", "trust_remote_code") and value is not False:
                yield f"{node.arg}={ast.unparse(node.value)}"


def test_nothing_that_ships_unpickles_or_runs_code_of_a_model() -> None:
    modules = [
        file for page in ("engine", "workbench", "jobs", "ui", "alembic") for file in (ROOT / page).rglob("*.py")
    ]
    result = {str(file.relative_to(ROOT)): list(unpickling(file.read_text(encoding="utf-8"))) for file in modules}
    assert len(result) > 100
    assert {name: what for name, what in result.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "torch.load('x')",
        "from torch import load",
        "read = torch.load",
        "import pickle",
        "import joblib",
        "from pickle import loads",
        "f(allow_pickle=True)",
        "f(trust_remote_code=wish)",
    ],
)
def test_the_test_sees_what_unpickles(source: str) -> None:
    assert list(unpickling(source))
