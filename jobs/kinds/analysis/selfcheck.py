"""Check the engine's laws on a tiny model on this machine; the verdicts are the job's result."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event, Progress
from engine.selfcheck.law import LawVerdict, report
from engine.selfcheck.laws import LAWS, run_laws
from jobs.attempt.work import Register, Work
from workbench.kinds.analysis import SelfCheck


def run(work: Work, _: SelfCheck) -> Generator[Event, None, Register]:
    """Checks one law per step. A law that fails is a result; the job itself succeeds."""
    checked: list[LawVerdict] = []
    for one in run_laws(work.settings.device):
        checked.append(one)
        yield Progress(len(checked), len(LAWS), "laws", f"{one.law} {'ok' if one.passed else 'FAILED'}")
    result = asdict(report(checked, work.settings.device))

    def register(_: Session) -> dict[str, Any]:
        return result

    return register
