"""What a job began with: written into its folder once, read back by every later attempt at it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import TrainingError
from jobs.attempt.work import Work
from jobs.kinds.shared.tokens import DomainFiles


def read_inputs(work: Work, what: str) -> Any:
    """What an earlier attempt wrote down, as JSON has it; None where none did."""
    path = work.folder / f"{what}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_inputs(work: Work, what: str, told: Any) -> None:
    """Writes it for all attempts to come, wholly or not at all."""
    path = work.folder / f"{what}.json"
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(told), encoding="utf-8")
    aside.replace(path)


def require_same(work: Work, domains: Sequence[DomainFiles], others: Mapping[str, str] | None = None) -> None:
    """Raises TrainingError where a later attempt reads other text, or others by SHA-256, than the first one did.

    A job that failed keeps nothing from being deleted and made anew under the same name; its checkpoints are of before.
    """
    now = {f"domain “{domain.name}”": domain.data_sha256 for domain in domains} | dict(others or {})
    begun = read_inputs(work, "sources")
    if begun is None:
        write_inputs(work, "sources", now)
        return
    for what, sha256 in now.items():
        if begun.get(what) != sha256:
            raise TrainingError(
                f"The {what} must be the one that this training began with, but is another by now.", "Start a new job."
            )
