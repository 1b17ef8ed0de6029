"""`python -P -m ui.serving.supervise MODULE`: runs a module as a process and starts it again when it dies of itself.

A worker that the system killed for its memory must not take the studio down with it; its jobs go on by
themselves once there is a worker again. One that cannot even start is given up, so that its reason is seen.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from engine.subprocesses import python_command

STAYED_SECONDS = 20.0  # one that lived so long did start: the next death is a new story
QUICK_DEATHS = 3
PAUSE_SECONDS = 1.0


def keep(command: Sequence[str], sleep: Callable[[float], None] = time.sleep) -> int:
    """Runs a command until it ends well, is asked to end, or dies three times in a row right after its start."""
    asked: int | None = None  # the signal that ends this
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, _frame: object) -> None:
        nonlocal asked
        asked = number
        if child is not None:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    quick = 0
    while True:
        began = time.monotonic()
        child = subprocess.Popen(command)
        if asked is not None:  # it came while the child was being made
            child.send_signal(asked)
        code = child.wait()
        quick = quick + 1 if time.monotonic() - began < STAYED_SECONDS else 1
        if asked is None and code != 0 and quick < QUICK_DEATHS:
            print(f"{' '.join(command[1:])} died ({code}); it is started again.", file=sys.stderr, flush=True)
            sleep(PAUSE_SECONDS)
            if asked is None:
                continue
        return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(keep(python_command(*sys.argv[1:])))
