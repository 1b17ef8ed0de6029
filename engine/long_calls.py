"""Runs a library's call that reports nothing, and says meanwhile how far it is by the seconds that it should take."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from time import monotonic
from typing import TypeVar

from engine.events import Progress

Made = TypeVar("Made")
EVERY_SECONDS = 1.0
ESTIMATED = "estimated from its size"


BAR_OPTIONS = {"disable": False, "mininterval": 0.2, "bar_format": "{n_fmt}/{total_fmt}"}  # of tqdm


class ProgressBar:
    """A file for tqdm's bars with `BAR_OPTIONS`; keeps what they say last: `done` of `total`, 0 of 0 before that."""

    def __init__(self) -> None:
        self.done = self.total = 0

    def write(self, text: str) -> None:
        """Reads one state of a bar."""
        done, is_bar, total = text.strip().partition("/")
        if is_bar and done.isdecimal() and total.isdecimal():
            self.done, self.total = int(done), int(total)

    def flush(self) -> None:
        """Nothing waits to be written."""


def run_long_call(
    work: Callable[[], Made],
    seconds: float,
    note: str,
    phase: str,
    measure: Callable[[], Progress | None] = lambda: None,
) -> Generator[Progress, None, Made]:
    """Yields progress each second and returns what the call returns: by `measure` if it knows, else by the clock.

    Closing the generator waits for the call, which cannot be stopped.
    """
    began = monotonic()
    yield _estimate(0.0, seconds, note, phase)
    with ThreadPoolExecutor(1, "long-call") as pool:
        call = pool.submit(work)
        while not wait([call], EVERY_SECONDS).done:
            yield measure() or _estimate(monotonic() - began, seconds, note, phase)
    return call.result()


def _estimate(elapsed: float, seconds: float, note: str, phase: str) -> Progress:
    """Half at the expected time, and ever more slowly towards the end: a slow machine must not stand still."""
    percent = 100 * elapsed / (elapsed + max(seconds, 1.0))
    return Progress(percent, 100, "percent", f"{note} ({ESTIMATED})", phase=phase, is_estimated=True)
