"""A law and its verdict: the deviation, and as a control the deviation when the law is broken on purpose.

A check whose control shows no deviation could not have failed, and counts as failed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.selfcheck.test_bed import TestBed

VISIBLE = 1e-3  # controls must be above this: far above every limit, far below typical controls


@dataclass(frozen=True)
class Finding:
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
    check: Callable[[TestBed], Iterator[Finding]]


@dataclass(frozen=True)
class Checked:
    """The verdict on one law; `measured` and `control` are None when not finite."""

    law: str
    sentence: str
    tolerance: str
    passed: bool
    measured: float | None
    control: float | None
    seconds: float
    message: str = ""


def judge(law: Law, bed: TestBed) -> Checked:
    """Checks one law. An exception inside the check fails the law, with its message."""
    began, deviation, control = time.perf_counter(), math.nan, math.nan
    try:
        findings = list(law.check(bed))
        deviation, control = (
            worst(finding.deviation for finding in findings),
            least(finding.control for finding in findings),
        )
        message = complaint(law, deviation, control)
    except Exception as error:  # of any kind: the other laws must still be checked
        message = f"{type(error).__name__}: {next(iter(str(error).splitlines()), 'no message')}"
    return Checked(
        law.number,
        law.sentence,
        law.tolerance,
        not message,
        _finite(deviation),
        _finite(control),
        time.perf_counter() - began,
        message,
    )


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


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference: 0 only if all numbers are equal, infinite if the shapes differ."""
    return _largest(a, b, relative=False)


def relative_gap(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to `b` where that is above 1."""
    return _largest(a, b, relative=True)


def _largest(a: Tensor, b: Tensor, *, relative: bool) -> float:
    if a.shape != b.shape:
        return math.inf
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    unit = b.abs().clamp(min=1) if relative else torch.ones(())
    return float(torch.where(a == b, 0.0, (a - b).abs() / unit).max())


def worst(values: Iterable[float]) -> float:
    """The largest value; NaN if any is NaN or there are none."""
    numbers = list(values)
    return max(numbers) if numbers and not any(map(math.isnan, numbers)) else math.nan


def least(values: Iterable[float]) -> float:
    """The smallest value; NaN if any is NaN or there are none."""
    return -worst(-value for value in values)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
