"""The result of a self-check as text: each law's result, the machine, and versions changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.present.text.formatting import duration

OK, FAILED = "ok", "FAILED"


def result(passed: bool) -> str:
    """The result of a law in a word."""
    return OK if passed else FAILED


def number(value: float | None) -> str:
    """A deviation in three digits: `0`, `2.38e-07`, `0.683`."""
    return "no number" if value is None else f"{value:.3g}"


def place(findings: Mapping[str, Any]) -> str:
    """The machine on which it was measured, and how long that took."""
    versions = ", ".join(f"{name} {version}" for name, version in findings["versions"].items())
    return f"Measured in {duration(findings['seconds'])} on {findings['device']}, {versions}."


def since_then(findings: Mapping[str, Any], now: Mapping[str, str]) -> str:
    """The versions that changed since the check; empty if none did."""
    then = findings["versions"]
    changed = [
        f"{name} was {then.get(name, 'not there')} and is {now[name]} now"
        for name in now
        if then.get(name) != now[name]
    ]
    return f"{'; '.join(changed)}. Check again." if changed else ""
