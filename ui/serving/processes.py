"""Finds the processes of a workbench on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from workbench.settings import Settings

WORKER, SCHEDULER = "jobs.queue.worker", "jobs.queue.scheduler"
SUPERVISOR = "ui.serving.supervise"  # its command line names the module that it runs


def runs(module: str, settings: Settings) -> bool:
    """Whether a process on this machine runs a module for the same home folder."""
    return any(_is(process, module) and _home(process) == settings.root for process in psutil.process_iter())


def _is(process: psutil.Process, module: str) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:  # it has ended, or belongs to another user
        return False
    return "-m" in words and module in words and SUPERVISOR not in words


def _home(process: psutil.Process) -> Path | None:
    try:
        return home_of(process.environ(), Path(process.cwd()))
    except psutil.Error:
        return None


def home_of(environment: Mapping[str, str], folder: Path) -> Path:
    """The home folder of a process with this environment and the working directory `folder`."""
    from workbench.settings import Settings

    home = environment.get("WORKBENCH_HOME") or Settings.model_fields["home"].default
    return (folder / Path(home).expanduser()).resolve()
