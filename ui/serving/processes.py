"""Which processes of this machine belong to a workbench."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from workbench.settings import Settings

WORKER, CLOCK = "jobs.queue.worker", "jobs.queue.scheduler"
KEEPER = "ui.serving.supervise"  # only keeps another one running


def runs(module: str, settings: Settings) -> bool:
    """Whether a process of this machine runs a module for the same home folder."""
    return any(_is(process, module) and _home(process) == settings.root for process in psutil.process_iter())


def _is(process: psutil.Process, module: str) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:  # it has ended, or is somebody else's
        return False
    return "-m" in words and module in words and KEEPER not in words


def _home(process: psutil.Process) -> Path | None:
    try:
        return home_of(process.environ(), Path(process.cwd()))
    except psutil.Error:
        return None


def home_of(environment: Mapping[str, str], folder: Path) -> Path:
    """The home folder of a process with this environment that works in `folder`."""
    from workbench.settings import Settings

    told = environment.get("WORKBENCH_HOME") or Settings.model_fields["home"].default
    return (folder / Path(told).expanduser()).resolve()
