"""The launcher of this worker's joint trainings, by its settings and the slots that a job has leased."""

from __future__ import annotations

import shlex
from pathlib import Path

from engine.training.launchers.base import Launcher
from engine.training.launchers.local import LocalLauncher
from engine.training.launchers.remote_shell import RemoteShellLauncher, hosts_of, read_hostfile
from engine.training.launchers.slurm import SlurmLauncher
from jobs.attempt.work import Work
from workbench.node_address import node_address


def launcher_of(work: Work) -> Launcher:
    """What starts the processes of a job; raises BadSpec or TrainingError where the settings do not go together."""
    settings = work.settings
    if settings.launcher == "local":
        return LocalLauncher()
    address = node_address(settings)
    if settings.launcher == "slurm":
        options = tuple(shlex.split(settings.slurm_options))
        return SlurmLauncher(address, settings.processes_per_node, settings.device != "cpu", options)
    hosts = hosts_of(work.claim.gpus) or read_hostfile(Path(settings.hostfile))
    return RemoteShellLauncher(hosts, address, tuple(shlex.split(settings.remote_shell)))
