"""Only a method's own folder knows it by its name; everybody else asks its descriptor what it can do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.methods.registry import methods

ROOT = Path(__file__).parents[1]
OWN = ROOT / "engine/methods"
CONSTANTS = ("MODE", "AVERAGE", "DENSE", "DEMIX")  # names that a descriptor is imported under


def compared(tree: ast.AST) -> Iterator[ast.expr]:
    """What a module compares, or matches, each member of a collection for itself."""
    for node in ast.walk(tree):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        sides += [node.value] if isinstance(node, ast.MatchValue) else []
        for side in sides:
            yield from side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]


def comparisons(code: str) -> list[int]:
    """The lines that compare something with the name of a method."""
    return [node.lineno for node in compared(ast.parse(code)) if _is_method(node)]


def _is_method(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in methods()
    is_name = isinstance(node, ast.Attribute) and node.attr == "name" and isinstance(node.value, ast.Name)
    return is_name and node.value.id in CONSTANTS  # type: ignore[attr-defined]


def test_nobody_compares_a_methods_name() -> None:
    files = [path for package in ("engine", "workbench", "jobs", "ui") for path in (ROOT / package).rglob("*.py")]
    others = [path for path in files if not path.is_relative_to(OWN)]
    assert len(others) > 100
    lines = [f"{path.relative_to(ROOT)}:{line}" for path in others for line in comparisons(path.read_text())]
    assert lines == []


@pytest.mark.parametrize(
    "code",
    [
        "row.method == 'mode'",
        "'lora' != name",
        "name in ('dense', 'moe')",
        "row.method == MODE.name",
        "match name:\n    case 'demix':\n        pass",
    ],
)
def test_every_form_of_comparison_is_seen(code: str) -> None:
    assert comparisons(code)


@pytest.mark.parametrize("code", ["train(method='mode')", "kind == 'train-mode'", "NAMES = ('demix', 'dense')"])
def test_naming_a_method_is_no_comparison(code: str) -> None:
    assert not comparisons(code)
