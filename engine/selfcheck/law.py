"""A law and its verdict: the deviation, and as a control the deviation when the law is broken on purpose.

A check whose control shows no deviation could not have failed, and counts as failed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.device import device_name, versions
from engine.selfcheck.test_bed import TestBed

VISIBLE = 1e-3  # controls must be above this: far above every limit, far below typical controls


@dataclass(frozen=True)
class LawFinding:
    """One measurement: the deviation of the engine, and of a control that breaks the law on purpose."""

    deviation: float
    control: float


@dataclass(frozen=True)
class Law:
    """A law of docs/methods/README.md: its sentence, its tolerance as text and number, and its check."""

    number: str
    sentence: str
    tolerance: str
    limit: float
    check: Callable[[TestBed], Iterator[LawFinding]]


@dataclass(frozen=True)
class LawVerdict:
    """The verdict on one law; `measured` and `control` are None when not finite."""

    law: str
    sentence: str
    tolerance: str
    passed: bool
    measured: float | None
    control: float | None
    seconds: float
    message: str = ""


@dataclass(frozen=True)
class SelfCheckReport:
    """The verdicts of a self-check, and where they were reached."""

    ok: bool
    failed: list[str]  # numbers of the laws that do not hold
    seconds: float
    device: str
    versions: dict[str, str]
    laws: list[LawVerdict]


def report(verdicts: Sequence[LawVerdict], device: str) -> SelfCheckReport:
    """The report on laws that were checked; it holds if there are any and none failed."""
    failed = [verdict.law for verdict in verdicts if not verdict.passed]
    seconds = sum(verdict.seconds for verdict in verdicts)
    is_ok = bool(verdicts) and not failed
    return SelfCheckReport(is_ok, failed, seconds, device_name(device), versions(), list(verdicts))


def judge(law: Law, bed: TestBed) -> LawVerdict:
    """Checks one law. An exception inside the check fails the law, with its message."""
    began, deviation, control = time.perf_counter(), math.nan, math.nan
    try:
        findings = list(law.check(bed))
        deviation = worst(finding.deviation for finding in findings)
        control = -worst(-finding.control for finding in findings)
        message = complaint(law, deviation, control)
    except Exception as error:  # of any kind: the other laws must still be checked
        message = f"{type(error).__name__}: {next(iter(str(error).splitlines()), 'no message')}"
    measured, of_control = (value if math.isfinite(value) else None for value in (deviation, control))
    seconds = time.perf_counter() - began
    return LawVerdict(law.number, law.sentence, law.tolerance, not message, measured, of_control, seconds, message)


def complaint(law: Law, deviation: float, control: float) -> str:
    """The reason why a law fails; empty when it passes. NaN never passes."""
    if not deviation <= law.limit:
        return f"The deviation is {deviation:g}; at most {law.limit:g} is allowed."
    if not control > VISIBLE:
        return (
            f"The check does not notice a broken law: its control deviates by {control:g}, not by more than "
            f"{VISIBLE:g}. It proves nothing here."
        )
    return ""


def relative_gap(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to `b` where that is above 1."""
    return gap(a, b, relative=True)


def gap(a: Tensor, b: Tensor, *, relative: bool = False) -> float:
    """The largest difference: 0 only if all numbers are equal, infinite if the shapes differ."""
    if a.shape != b.shape:
        return math.inf
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    unit = b.abs().clamp(min=1) if relative else torch.ones(())
    return float(torch.where(a == b, 0.0, (a - b).abs() / unit).max())


def worst(values: Iterable[float]) -> float:
    """The largest value; NaN if any is NaN or there are none."""
    numbers = list(values)
    return max(numbers) if numbers and not any(map(math.isnan, numbers)) else math.nan
