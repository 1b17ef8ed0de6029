"""Estimates the remaining time of a job, with a range."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

WINDOW_SAMPLES = 120
NUM_PIECES = 4  # parts of the window whose speeds give the range
MIN_SECONDS = 3.0  # with less, an estimate would be a guess
MAX_SPREAD = 5.0  # of the fastest piece to the slowest: units that differ more say nothing of those to come


@dataclass(frozen=True)
class Estimate:
    """Seconds left: at the mean, the fastest and the slowest recent speed."""

    seconds: float
    soonest: float
    latest: float


class Pace:
    """Measures the speed of a job from its progress; a new phase or a step back restarts the measurement."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=WINDOW_SAMPLES)
        self._phase: object = None

    def see(self, at: float, done: float, phase: object) -> None:
        """Adds a sample: `done` units at second `at`; `phase` changes when units are no longer comparable."""
        if phase != self._phase or (self._samples and done < self._samples[-1][1]):
            self._samples.clear()
            self._phase = phase
        self._samples.append((at, done))

    def estimate(self, total: float) -> Estimate | None:
        """The time until `total` units are done; None with too few samples, or where units are too unlike."""
        samples = list(self._samples)
        if len(samples) <= NUM_PIECES or samples[-1][0] - samples[0][0] < MIN_SECONDS:
            return None
        last = len(samples) - 1
        ends = [samples[last * piece // NUM_PIECES] for piece in range(NUM_PIECES + 1)]
        speeds = [_speed(*pair) for pair in pairwise(ends)]
        mean, left = _speed(samples[0], samples[-1]), max(total - samples[-1][1], 0.0)
        if mean <= 0 or min(speeds) <= 0 or max(speeds) > MAX_SPREAD * min(speeds):
            return None  # no progress for a while, or no basis yet
        return Estimate(left / mean, left / max(speeds), left / min(speeds))


def _speed(start: tuple[float, float], end: tuple[float, float]) -> float:
    seconds = end[0] - start[0]
    return (end[1] - start[1]) / seconds if seconds > 0 else 0.0
