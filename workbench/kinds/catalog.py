"""All kinds of job: those of this package, and those of other installed packages."""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.plugins import find_plugins, missing_package
from workbench.errors import BadSpecError
from workbench.kinds.kind import Kind

GROUP = "expert_workbench.kinds"  # of entry points


@cache
def known_kinds() -> dict[str, Kind[Any]]:
    """Every kind by its name. Raises BadPluginError."""
    return find_plugins("workbench.kinds", GROUP, "KIND", Kind, lambda kind: kind.name)


def kind_named(name: object) -> Kind[Any]:
    """One kind. Raises BadSpecError that lists the kinds."""
    kinds = known_kinds()
    if not isinstance(name, str) or name not in kinds:
        shown = f"is unknown: {name!r}" if name else "is missing"
        problems = [f"kind: {shown}; choose one of {', '.join(sorted(kinds))}.", missing_package(str(name))]
        raise BadSpecError(list(filter(None, problems)))
    return kinds[name]
