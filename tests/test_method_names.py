"""Only a method's or kind's own files know it by name; everybody else asks its descriptor what it is."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from engine.methods.registry import methods
from workbench.kinds.kind import known_kinds

ROOT = Path(__file__).parents[1]
METHODS = ROOT / "engine/methods"
UNKNOWN = object()


class Module:
    """A module's tree, and what the names in it stand for where that is known without running it."""

    def __init__(self, code: str) -> None:
        self.tree = ast.parse(code)
        self._imported: dict[str, tuple[str, str]] = {}
        self._assigned: dict[str, ast.expr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self._imported |= {one.asname or one.name: (node.module, one.name) for one in node.names}
            if isinstance(node, ast.Import):
                self._imported |= {one.asname: (one.name, "") for one in node.names if one.asname}
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._assigned |= {target.id: node.value for target in targets if isinstance(target, ast.Name)}

    def compared(self) -> Iterator[tuple[int, object]]:
        """The known values that are compared, matched, or looked up in a table, with their lines."""
        for node in ast.walk(self.tree):
            sides: list[ast.expr | None] = []
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
            elif isinstance(node, ast.MatchValue):
                sides = [node.value]
            elif isinstance(node, ast.Dict) and _is_table(node.keys):
                sides = list(node.keys)
            for side in sides:
                yield from ((node.lineno, value) for value in _each(self.value_of(side)))

    def value_of(self, node: ast.expr | None) -> Any:
        """The value of an expression of constants, imported names and calls that find a descriptor."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return [self.value_of(elt) for elt in node.elts]
        if isinstance(node, ast.Attribute):
            return getattr(self.value_of(node.value), node.attr, UNKNOWN)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "get_method",
            "kind_named",
            "frozenset",
            "set",
        ):
            with suppress(Exception):
                return self.value_of(node.func)(*map(self.value_of, node.args))
        if isinstance(node, ast.Name):
            return self._value_of_name(node.id)
        return UNKNOWN

    def _value_of_name(self, name: str) -> Any:
        if name in self._imported:
            module, attribute = self._imported[name]
            return _imported(module, attribute) if module.partition(".")[0] in PACKAGES else UNKNOWN
        value = self._assigned.pop(name, None)  # a name that is assigned from itself is not known
        try:
            return UNKNOWN if value is None else self.value_of(value)
        finally:
            if value is not None:
                self._assigned[name] = value


PACKAGES = ("engine", "workbench", "jobs", "ui")


@cache
def _imported(module: str, attribute: str) -> Any:
    with suppress(Exception):
        value = import_module(module)
        return getattr(value, attribute) if attribute else value
    return UNKNOWN


def _is_table(keys: list[ast.expr | None]) -> bool:
    """Whether a literal is a table by name: of several names, and all of methods or all of kinds."""
    values = {key.value for key in keys if isinstance(key, ast.Constant)}
    return len(values) == len(keys) > 1 and any(values <= {*known} for known in (methods(), known_kinds()))


def _each(value: Any) -> Iterator[object]:
    """A value, or each in a collection, also the value of a member of an enumeration."""
    if isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from _each(one)
    elif value is not UNKNOWN:
        yield value


def comparisons(code: str, own: Collection[str] = ()) -> list[str]:
    """The lines that compare something with the name of a method or a kind, but for the own ones."""
    named = {*methods(), *known_kinds()} - {*own}
    return [f"{line}: {value}" for line, value in Module(code).compared() if isinstance(value, str) and value in named]


def own_kinds(path: Path) -> list[str]:
    """The kinds that a file belongs to: those that it defines, and the one that it runs or shows."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return [
        name
        for name, kind in known_kinds().items()
        if kind.spec.__module__ == module or (path.parents[1].name == "kinds" and path.stem == name.replace("-", "_"))
    ]


def test_nobody_compares_the_name_of_a_method_or_kind() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    others = [path for path in files if not path.is_relative_to(METHODS)]
    assert len(others) > 100
    lines = {str(path.relative_to(ROOT)): comparisons(path.read_text(), own_kinds(path)) for path in others}
    assert {name: values for name, values in lines.items() if values} == {}


@pytest.mark.parametrize(
    "code",
    [
        "row.method == 'mode'",
        "'lora' != name",
        "name in ('dense', 'moe')",
        "_FROZEN = 'lora'\nrow.method == _FROZEN",
        "NAMES = {'train-mode', 'make-seed'}\njob.kind in NAMES",
        "from engine.methods.mode.descriptor import METHOD as MODE\nrow.method == MODE.name",
        "from engine.methods.registry import get_method\n_MODE = get_method('mode')\nrow.method == _MODE.name",
        "match name:\n    case 'demix':\n        pass",
        "Job.kind == 'make-seed'",
        "{'lora': 1, 'mode': 2}[method]",
    ],
)
def test_every_form_of_comparison_is_seen(code: str) -> None:
    assert comparisons(code)


@pytest.mark.parametrize(
    "code",
    ["train(method='mode')", "kind = 'train-mode'", "NAMES = ('demix', 'dense')", "{'mode': 'lines', 'x': 1}"],
)
def test_naming_a_method_is_not_a_comparison(code: str) -> None:
    assert not comparisons(code)
