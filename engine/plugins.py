"""Finds plug-ins (the modules of a package, and what other installed packages offer as entry points), and extras.

A method, a gate, a kind of job and its screens are each one descriptor. Those that come with the workbench are modules
of a package, found by walking it; those of anybody else are entry points, as MLflow and pytest have them. In their
pyproject.toml:

    [project.entry-points."expert_workbench.kinds"]
    word-count = "word_count.kind:KIND"

Importing a plug-in runs its code: only packages installed in this environment are searched, never a folder of data.
Extras are those of `pip install 'expert-workbench[api]'`; one sentence says where one is missing.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, TypeVar

from engine.errors import Problem

Descriptor = TypeVar("Descriptor")


# Packages that are released with the workbench and installed apart, by how the names of their plug-ins begin.
_INSTALLED_APART = {"replicat": "expert-workbench-studies"}


class BadPluginError(Problem, code="bad_plugin"):
    """A plug-in could not be imported, is of the wrong type, or has the name of another one."""


def find_plugins(
    package: str, group: str, attribute: str, kind: type[Descriptor], name_of: Callable[[Descriptor], str]
) -> dict[str, Descriptor]:
    """Descriptors by name: `attribute` of each module in `package` that has one, then the entry points of `group`.

    Each value is a descriptor or a tuple of several. Where folders of the package have a module `descriptor`, only
    these modules are imported; else all modules, those of folders too, in alphabetical order. Raises BadPluginError.
    """
    descriptors: dict[str, Descriptor] = {}
    modules = ((name, getattr(import_module(name), attribute, None)) for name in _modules(package))
    built_in = [(name, value) for name, value in modules if value is not None]
    points = sorted(_entry_points(group), key=lambda point: point.name)
    offered = [(f"{point.name} ({point.value})", _load(point)) for point in points]
    origins = ((origin, value if isinstance(value, tuple) else (value,)) for origin, value in [*built_in, *offered])
    for origin, value in ((origin, descriptor) for origin, several in origins for descriptor in several):
        if not isinstance(value, kind):
            raise BadPluginError(
                f"The plug-in {origin} is a {type(value).__name__}, not a {kind.__name__}.", "Correct its entry point."
            )
        name = name_of(value)
        if name in descriptors:
            raise BadPluginError(f"Two plug-ins are named “{name}”; {origin} is the second.", "Rename or remove it.")
        descriptors[name] = value
    return descriptors


def load_object(path: str) -> Any:
    """What a descriptor names as `package.module:attribute`, imported only now. Raises BadPluginError."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadPluginError(f"{path} cannot be imported: {error}.", "Repair or uninstall its package.") from error


def missing_package(name: str) -> str:
    """A sentence on the package that has a plug-in of this name, for one that is not installed; empty if not known."""
    groups = ("expert_workbench.kinds", "expert_workbench.commands")
    present = [point.name for group in groups for point in _entry_points(group)]
    for start, package in _INSTALLED_APART.items():
        if name.startswith(start) and not any(one.startswith(start) for one in present):
            return f"It is in the package {package}, which is not installed."
    return ""


def _modules(package: str) -> Iterator[str]:
    modules = list(pkgutil.iter_modules(import_module(package).__path__, f"{package}."))
    descriptors = [f"{module.name}.descriptor" for module in modules if module.ispkg]
    if present := [name for name in descriptors if find_spec(name)]:
        yield from present
        return
    for module in modules:
        if module.ispkg:
            yield from _modules(module.name)
        else:
            yield module.name


@cache
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _load(point: EntryPoint) -> object:
    try:
        return point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadPluginError(
            f"The plug-in {point.name} ({point.value}) cannot be imported: {reason}", "Repair or uninstall it."
        ) from error


# The modules that each extra brings in addition to those of `jobs`, which every front end needs; a test compares
# them with pyproject.toml.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "jobs": (
        "alembic",
        "celery",
        "fsspec",
        "honcho",
        "httpx",
        "kombu",
        "peft",
        "plotly",
        "psutil",
        "pydantic",
        "pydantic_core",
        "pydantic_settings",
        "rich",
        "sqlalchemy",
        "typer",
        "umap",
    ),
    "api": ("fastapi", "fastapi_offline", "gradio", "prometheus_client", "starlette", "uvicorn"),
    "studio": ("pandas", "starlette", "streamlit", "uvicorn"),
    "notebook": ("pandas",),
    "s3": ("s3fs",),
}
_USERS = {"jobs": "command line", "api": "API", "studio": "studio", "notebook": "notebook", "s3": "store on S3"}


class MissingExtraError(Problem, code="missing_extra"):
    """Libraries of an extra are not installed."""


def require_extras(*extras: str) -> None:
    """Raises MissingExtraError if a library of these extras is not installed; imports none."""
    for extra in extras:
        missing = [name for name in (*LIBRARIES["jobs"], *LIBRARIES[extra]) if not _is_installed(name)]
        if missing:
            raise MissingExtraError(
                f"The {_USERS[extra]} needs what is not installed: {', '.join(dict.fromkeys(missing))}.",
                install_line(extra),
            )


def install_line(extra: str) -> str:
    """The next step where an extra is missing."""
    return f"Install it with: pip install 'expert-workbench[{extra}]'"


def _is_installed(name: str) -> bool:
    # A loaded module may have no spec: Celery replaces its own.
    return sys.modules[name] is not None if name in sys.modules else find_spec(name) is not None
