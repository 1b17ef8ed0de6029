"""The launcher of this worker's joint trainings, by its settings and the slots that a job has leased."""

from __future__ import annotations

import ipaddress
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from engine.errors import LostNodeError
from engine.training.launchers import Launcher, LocalLauncher, RemoteShellLauncher, SlurmLauncher, hosts_of
from jobs.attempt.work import Work
from workbench.errors import BadSpecError
from workbench.job_records import devices
from workbench.settings import Settings


def node_address(settings: Settings) -> str:
    """The address of the setting or of this machine's name. Raises BadSpecError for a loopback address."""
    name = settings.node_address or socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        raise BadSpecError(
            [f"The name {name} of this machine has no address: {error}."], "Set WORKBENCH_NODE_ADDRESS."
        ) from None
    if ipaddress.ip_address(address).is_loopback:
        raise BadSpecError(
            [f"The other machines cannot reach this one as {name}, which is {address} here."],
            "Set WORKBENCH_NODE_ADDRESS to an address that they reach.",
        )
    return address


_PRIVATE = ("WORKBENCH_", "AWS_")  # variables with addresses and keys of the database and the store


def launcher_of(work: Work) -> Launcher:
    """The launcher of a job's processes. Raises BadSpecError or TrainingError if the settings contradict each other."""
    settings = work.settings
    if settings.launcher == "local":
        return LocalLauncher()
    address = node_address(settings)
    if settings.launcher == "slurm":
        options = tuple(shlex.split(settings.slurm_options))
        return SlurmLauncher(address, settings.processes_per_node, settings.device != "cpu", options, _PRIVATE)
    if not work.claim.gpus:
        raise BadSpecError(
            ["A training on the hosts of a hostfile runs by a worker, which leases their slots."],
            "Submit it to the queue, and start a worker with WORKBENCH_LAUNCHER=ssh.",
        )
    shell = tuple(shlex.split(settings.remote_shell))
    return RemoteShellLauncher(hosts_of([gpu.number for gpu in work.claim.gpus]), address, shell, _PRIVATE)


@contextmanager
def lost_hosts_withdrawn(work: Work) -> Iterator[None]:
    """When the block loses a host, its slots are not offered again before it can be reached."""
    try:
        yield
    except LostNodeError as lost:
        if lost.node:
            with work.transaction() as session:
                devices.withdraw_host(session, lost.node)
        raise
