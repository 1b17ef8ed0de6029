"""A law, and the verdict on it: measured as it is, and measured again where it is broken on purpose.

The second number is the control. A check whose control is invisible could not have failed, and counts as failed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.selfcheck.test_bed import TestBed

VISIBLE = 1e-3  # a control must be above this: far beyond every limit, far below what honest controls show


@dataclass(frozen=True)
class Finding:
    """One measurement: how far the engine is from the law, and how far a thing is that breaks it on purpose."""

    deviation: float
    control: float


@dataclass(frozen=True)
class Law:
    """A law of docs/methods/README.md: its sentence, its tolerance in words and as a limit, and what measures it."""

    number: str
    sentence: str
    tolerance: str
    limit: float
    check: Callable[[TestBed], Iterator[Finding]]


@dataclass(frozen=True)
class Checked:
    """The verdict on one law; `measured` and `control` are None where there is no finite number."""

    law: str
    sentence: str
    tolerance: str
    passed: bool
    measured: float | None
    control: float | None
    seconds: float
    message: str = ""


def judge(law: Law, ground: TestBed) -> Checked:
    """Checks one law. Whatever goes wrong inside it is the law's failure, with its message."""
    began, deviation, control = time.perf_counter(), math.nan, math.nan
    try:
        found = list(law.check(ground))
        deviation, control = worst(one.deviation for one in found), least(one.control for one in found)
        message = complaint(law, deviation, control)
    except Exception as error:  # of any kind: a report that breaks off says nothing of the other laws
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
    """Why a law does not pass; empty when it does. A number that is none never passes."""
    if not deviation <= law.limit:
        return f"The deviation must be at most {law.limit:g}, but is {deviation:g} instead."
    if not control > VISIBLE:
        return (
            f"The check must see a broken law (a deviation above {VISIBLE:g}), but sees {control:g} instead: "
            "it proves nothing here."
        )
    return ""


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference: 0 only if all numbers are the same, infinite if the shapes differ."""
    return _largest(a, b, relative=False)


def relative_gap(a: Tensor, b: Tensor) -> float:
    """The same, as a share of `b` where that is beyond 1."""
    return _largest(a, b, relative=True)


def _largest(a: Tensor, b: Tensor, *, relative: bool) -> float:
    if a.shape != b.shape:
        return math.inf
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    unit = b.abs().clamp(min=1) if relative else torch.ones(())
    return float(torch.where(a == b, 0.0, (a - b).abs() / unit).max())


def worst(values: Iterable[float]) -> float:
    """The largest; no number when one is none, or when there are none at all."""
    found = list(values)
    return max(found) if found and not any(map(math.isnan, found)) else math.nan


def least(values: Iterable[float]) -> float:
    """The smallest; no number when one is none, or when there are none at all."""
    return -worst(-value for value in values)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
