"""Check the engine's laws on a tiny model on this machine; the verdicts are the job's result."""

from __future__ import annotations

from dataclasses import asdict

from engine.events import Progress
from engine.selfcheck.law import LawVerdict, report
from engine.selfcheck.laws import LAWS, run_laws
from jobs.attempt.work import JobRun, Work
from workbench.kinds.analysis import SelfCheck


def run(work: Work, _: SelfCheck) -> JobRun:
    """Checks one law per step. A law that fails is a result; the job itself succeeds."""
    checked: list[LawVerdict] = []
    for law in run_laws(work.settings.device):
        checked.append(law)
        yield Progress(len(checked), len(LAWS), "laws", f"{law.law} {'ok' if law.passed else 'FAILED'}")
    return asdict(report(checked, work.settings.device))
