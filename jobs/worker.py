"""A worker, `python -m jobs.worker`: waits for calls and runs jobs, WORKBENCH_WORKER_SLOTS at a time."""

from __future__ import annotations

import os
import socket
import sys
from typing import NoReturn

from jobs.tasks import app
from workbench.database import require_registry
from workbench.settings import get_settings


def main() -> NoReturn:
    """Works until SIGTERM or Ctrl-C; then running jobs leave a checkpoint and go back to the queue."""
    require_registry(get_settings())
    worker = app.Worker(
        hostname=f"workbench-{os.getpid()}@{socket.gethostname()}",
        loglevel="WARNING",
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    sys.exit(worker.exitcode or 0)


if __name__ == "__main__":
    main()
