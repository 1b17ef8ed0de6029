"""The devices that a job has leased: its GPUs must be there when it starts; the slots of hosts decide the launcher."""

from __future__ import annotations

import ipaddress
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.device import Gpu, find_gpus
from engine.errors import LostNodeError
from engine.training.launchers import Launcher, LocalLauncher, RemoteShellLauncher, SlurmLauncher, hosts_of
from jobs.attempt.work import Work
from workbench.errors import BadSpecError, LostGpuError
from workbench.job_records import devices
from workbench.settings import Settings


def require_leased_gpus(work: Work) -> None:
    """Raises LostGpuError when a leased GPU is gone; jobs are not offered it any more. Pretended GPUs are left out."""
    leased = [gpu for gpu in work.claim.gpus if gpu.memory_bytes]
    if not leased or work.settings.launcher != "local":
        return
    if _sees(leased):
        _bound_memory(work.claim.gpu_share)
        return
    # Each is looked for by a process of its own: without one, CUDA also hides the later ones.
    lost = [gpu for gpu in leased if gpu.uuid not in {there.uuid for there in find_gpus(gpu.visible)}] or leased
    with work.transaction() as session:
        devices.withdraw_lost(session, work.job_id, work.claim.fence, [gpu.uuid for gpu in lost])
    names = " and ".join(f"GPU {gpu.number} ({gpu.name})" for gpu in lost)
    raise LostGpuError(
        f"Its worker's {names} cannot be used any more.", "Check it with nvidia-smi, then restart the worker."
    )


def _sees(leased: Sequence[Gpu]) -> bool:
    """Whether this process, which sees no others than the leased GPUs, can use them all.

    Behind a number there may be another GPU by now.
    """
    import torch

    if not torch.cuda.is_available() or torch.cuda.device_count() < len(leased):
        return False
    if all(gpu.address not in ("", gpu.number) for gpu in leased):
        return True
    return {gpu.uuid for gpu in leased} <= {
        str(torch.cuda.get_device_properties(number).uuid) for number in range(torch.cuda.device_count())
    }


def _bound_memory(share: float) -> None:
    """Has torch refuse this process more of the GPU's memory than its share; what CUDA itself takes comes on top."""
    import torch

    if share < 1:
        torch.cuda.set_per_process_memory_fraction(share)


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
def withdrawing_lost_hosts(work: Work) -> Iterator[None]:
    """When the block loses a host, its slots are not offered again before it can be reached."""
    try:
        yield
    except LostNodeError as lost:
        if lost.node:
            with work.transaction() as session:
                devices.withdraw_host(session, lost.node)
        raise
