"""What is imported is declared, nothing private is imported, and the lowest versions are the bounds that we promise."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OWN = {"engine", "workbench", "jobs", "ui", "workbench_studies"}
PACKAGES = ("engine", "workbench", "jobs", "ui", "alembic", "studies/workbench_studies")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ONLY_FOR_TYPES = {"_typeshed"}  # of the type checker, imported under TYPE_CHECKING


def imports() -> Iterator[tuple[Path, str]]:
    """Every module of another library that our code imports, with the names taken from it."""
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    yield from ((file, alias.name) for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield from ((file, f"{node.module}.{alias.name}") for alias in node.names)


def foreign_imports() -> list[tuple[str, str, str]]:
    """File, top-level module and full name of each import from a library that is neither ours nor Python's."""
    known = OWN | sys.stdlib_module_names | ONLY_FOR_TYPES
    split = ((str(file.relative_to(ROOT)), name.partition(".")[0], name) for file, name in imports())
    return [(file, top, name) for file, top, name in split if top not in known]


def declared(*extras: str) -> dict[str, Requirement]:
    """The requirements by canonical name, with those of these extras and of the extras that they name."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    result = {canonicalize_name(one.name): one for one in map(Requirement, lines)}
    own = result.pop(canonicalize_name(PROJECT["name"]), None)
    return result | (declared(*own.extras) if own else {})


def test_every_library_that_is_imported_is_declared() -> None:
    names = packages_distributions()
    requirements = declared("all").keys()
    missing = {
        f"{file}: {top}"
        for file, top, _ in foreign_imports()
        if not requirements & {canonicalize_name(name) for name in names.get(top, [top])}
    }
    assert missing == set()


def test_every_requirement_has_a_lower_bound() -> None:
    assert [name for name, one in declared("all").items() if not one.specifier] == []


def test_no_private_module_or_name_of_a_library_is_imported() -> None:
    private = {
        f"{file}: {name}"
        for file, _, name in foreign_imports()
        if any(re.match(r"_(?!_)", part) for part in name.split("."))
    }
    assert private == set()


def test_the_lowest_versions_that_are_tested_are_the_lower_bounds() -> None:
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    requirements = declared("all")
    bounds = {
        canonicalize_name(pin.name): (str(pin.specifier), str(requirements[canonicalize_name(pin.name)].specifier))
        for pin in pins
        if canonicalize_name(pin.name) in requirements
    }
    assert set(bounds) >= {"fastapi", "gradio", "starlette", "streamlit", "typer"}
    assert {name: pin for name, (pin, _) in bounds.items()} == {
        name: bound.replace(">=", "==") for name, (_, bound) in bounds.items()
    }
