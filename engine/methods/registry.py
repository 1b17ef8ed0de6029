"""All methods by name: those in the folders next to this file, and those of installed packages.

Any package can offer one as an entry point:

    [project.entry-points."expert_workbench.methods"]
    my-method = "my_method.descriptor:METHOD"
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.files import EXPERT_CARD
from engine.methods.base import Method
from engine.plugins import find_plugins

ENTRY_POINTS = "expert_workbench.methods"


@cache
def methods() -> dict[str, Method]:
    """All methods by name, those of this package first."""
    plugins = find_plugins("engine.methods", ENTRY_POINTS, "METHOD", Method, lambda method: method.name)
    return dict(sorted(plugins.items(), key=lambda one: one[1].order))


def joint_methods() -> dict[str, Method]:
    """The methods of the job for joint training."""
    return {name: method for name, method in methods().items() if method.is_trainable and method.is_joint}


def get_method(name: str) -> Method:
    """The method of this name; raises ModelError where it is not installed."""
    if name not in methods():
        raise ModelError(f"There is no method “{name}”; there are: {', '.join(methods())}.", "Install its package.")
    return methods()[name]


def method_of(name: str) -> Method:
    """The method of an expert, for describing it: a placeholder if the method is not installed."""
    return methods().get(name) or _missing(name)


def method_of_card(card: Mapping[str, Any], base: Path) -> Method:
    """The method of an expert's files; raises ModelError if it is not installed.

    Methods that store the same files cannot be distinguished: it is then the method of an expert trained on its own.
    """
    for method in methods().values():
        if method.opens(card, base):
            return method
    stored = card.get("experts_in") or card.get("method")
    raise ModelError(f"No method is installed that reads an expert of “{stored}”.", "Install its package.")


def method_of_files(expert: Path, base: Path) -> Method:
    """The method of an expert's folder. An unreadable card is reported when the expert is loaded."""
    try:
        card = json.loads((expert / EXPERT_CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        card = {}
    return method_of_card(card if isinstance(card, dict) else {}, base)


@cache
def _missing(name: str) -> Method:
    return Method(
        name=name,
        title=name,
        sentence="a method that is not installed",
        paper="",
        is_trainable=False,
        is_joint=False,
        can_be_copied=False,
        no_decoder_because="is of a method that is not installed",
    )
