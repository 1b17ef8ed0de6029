"""What a job began with: written into its folder once, read back by every later attempt at it."""

from __future__ import annotations

import json
from typing import Any

from jobs.work import Work


def read_back(work: Work, what: str) -> Any:
    """What an earlier attempt wrote down, as JSON has it; None where none did."""
    path = work.folder / f"{what}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_down(work: Work, what: str, told: Any) -> None:
    """Writes it for all attempts to come, wholly or not at all."""
    path = work.folder / f"{what}.json"
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(told), encoding="utf-8")
    aside.replace(path)
