"""Progress on stderr: a bar on a terminal, else a line now and then, for logs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ui.cli.output import print_note
from ui.present.terminal import harmless
from ui.present.text.formatting import duration

Draw = Callable[[str, float], None]  # what is done now, and the share that is done
FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0  # between two lines; a long run has fewer of them


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Draw]:
    """Yields a function that shows progress; without a terminal it prints plain lines."""
    if not quiet and not sys.stderr.isatty():
        lines = Lines()
        yield lines.draw
        lines.end()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        bar = progress.add_task("starting", total=1.0)
        yield lambda words, share: progress.update(bar, description=harmless(words), completed=share)


class Lines:
    """Prints the first state, then one after 5 seconds, 10, 20, … and at most a minute, and the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, write: Callable[[str], None] = print_note) -> None:
        self._clock, self._write = clock, write
        self._started_at = self._printed_at = clock()
        self._pause = 0.0
        self._words, self._share, self._first_share = "", 0.0, 0.0
        self._is_printed = True

    def draw(self, words: str, share: float) -> None:
        """Prints the state if it is time to."""
        if not self._pause:
            self._first_share = share  # what was done before this command is not its pace
        self._words, self._share, self._is_printed = words, share, False
        if self._clock() - self._printed_at >= self._pause:
            self._print()
            self._pause = min(max(FIRST_SECONDS, 2 * self._pause), LONGEST_SECONDS)

    def end(self) -> None:
        """Prints the last state if it was not."""
        if not self._is_printed:
            self._print()

    def _print(self) -> None:
        spent = self._clock() - self._started_at
        self._write(f"[{self._share:4.0%}] {self._words}{self._left(spent)}")
        self._printed_at, self._is_printed = self._clock(), True

    def _left(self, spent: float) -> str:
        """`, about 3 min left`, at the pace so far; nothing before there is one."""
        gained = self._share - self._first_share
        if gained <= 0 or self._share >= 1 or "left" in self._words:
            return ""
        return f", about {duration(spent * (1 - self._share) / gained)} left"
