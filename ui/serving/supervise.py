"""`python -P -m ui.serving.supervise MODULE`: runs a module as a process and restarts it when it crashes.

`python -P -m ui.serving.supervise -- COMMAND …` does so with the command of another program.

A worker that the system killed for its memory must not stop the studio; its jobs resume once a worker runs again. A
process that fails right after its start several times is not restarted, so that its error can be seen.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from engine.device import python_command

STABLE_SECONDS = 20.0  # a process that ran this long did start: its crashes are counted from 0
SLOW_START_SECONDS = 300.0  # the same for another program, which may load for minutes before it fails
MAX_QUICK_CRASHES = 3
PAUSE_SECONDS = 1.0


def supervise(
    command: Sequence[str], sleep: Callable[[float], None] = time.sleep, stable_seconds: float | None = None
) -> int:
    """Runs a command until it succeeds, is stopped by a signal, or crashes three times right after its start."""
    received: int | None = None  # the signal that stops the process
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, _frame: object) -> None:
        nonlocal received
        received = number
        if child is not None:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    quick = 0
    while True:
        started = time.monotonic()
        child = subprocess.Popen(command)
        if received is not None:  # it came while the child was started
            child.send_signal(received)
        code = child.wait()
        quick = quick + 1 if time.monotonic() - started < (stable_seconds or STABLE_SECONDS) else 1
        if received is None and code != 0 and quick < MAX_QUICK_CRASHES:
            print(f"{' '.join(command[1:])} crashed ({code}); restarting it.", file=sys.stderr, flush=True)
            sleep(PAUSE_SECONDS)
            if received is None:
                continue
        return code if code >= 0 else 128 - code


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[0] == "--":
        sys.exit(supervise(given[1:], stable_seconds=SLOW_START_SECONDS))
    sys.exit(supervise(python_command(*given)))
