"""The processes of the job that is forecast: how many there are, and on which machines."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine.training.launchers import RemoteHost, hosts_of, read_hostfile
from workbench.answers.cards import DeviceCard
from workbench.answers.forecasts import Measured
from workbench.job_records.devices import SLOT_NAME, share_of_gpu
from workbench.job_records.preconditions import kind_of
from workbench.settings import Settings


@dataclass(frozen=True)
class Places:
    """At most so many processes of a job run on this machine, and on each other one."""

    here: int = 1
    elsewhere: int = 0


def with_processes(spec: Any, settings: Settings) -> Any:
    """The job as it will run: it asks for as many GPUs as WORKBENCH_PROCESSES gives it processes.

    Domains to retain are evaluated in one process, and a share of a GPU has one process.
    """
    is_spread = kind_of(spec).spreads(spec.model_dump()) and "num_gpus" in type(spec).model_fields
    if not is_spread or spec.num_gpus or getattr(spec, "retain", None) or settings.processes <= 1:
        return spec
    return spec if share_of_gpu(spec, settings) < 1 else spec.model_copy(update={"num_gpus": settings.processes})


def processes_of(spec: Any, settings: Settings) -> Literal["one", "several", "dividing"]:
    """Whether the job trains in one process, as its probe does, in several, or in several that divide the model.

    The spec is that of `with_processes`.
    """
    if not kind_of(spec).spreads(spec.model_dump()) or share_of_gpu(spec, settings) < 1:
        return "one"
    if "num_gpus" not in type(spec).model_fields:  # parts, which are in processes of their own
        return "dividing" if settings.processes > 1 else "one"
    if spec.num_gpus > 1:
        return "dividing" if spec.training.shard else "several"
    return "one" if settings.launcher == "local" else "several"  # also a single one is in a process group there


def places_of(num_gpus: int, settings: Settings, devices: Sequence[DeviceCard]) -> Places:
    """Where a training that asks for GPUs runs; raises TrainingError for a hostfile that cannot be read."""
    hosts = _hosts(num_gpus, settings, devices) if num_gpus else ()
    if not hosts:
        return Places(max(1, num_gpus))
    names = ("localhost", socket.gethostname())
    most = {True: 0, False: 0}  # processes of a machine, by whether it is this one
    for host in hosts:
        is_here = host.name.rpartition("@")[2] in names
        most[is_here] = max(most[is_here], min(num_gpus, host.slots))
    return Places(most[True], most[False])


def _hosts(num_gpus: int, settings: Settings, devices: Sequence[DeviceCard]) -> Sequence[RemoteHost]:
    """The machines of the launcher; empty where all processes run on the worker's own.

    The worker of a hostfile has settings of its own: a job goes to its slots where no other worker has enough GPUs.
    """
    if settings.launcher == "slurm":
        return [RemoteHost("a node of Slurm", settings.processes_per_node)]
    if settings.launcher == "ssh" and settings.hostfile:
        return read_hostfile(Path(settings.hostfile))
    there = [device for device in devices if device.is_there]
    slots = [device.number for device in there if device.name == SLOT_NAME]
    others = Counter((device.host, device.worker) for device in there if device.name != SLOT_NAME)
    return hosts_of(slots) if max(others.values(), default=0) < num_gpus <= len(slots) else ()


def place_on_machines(measured: Measured, places: Places) -> Measured:
    """What was measured for processes of one machine, were they on those machines.

    This machine has the job's own process, which loads the finished model at the end; each machine with a share of the
    processes also has torchrun's.
    """
    if not places.elsewhere:
        return measured
    count = measured.num_processes
    python = measured.memory.process // (count + 2 if count > 1 else 1)
    each = (measured.peak_bytes - (2 * python if count > 1 else 0)) // count
    own = each * places.here + python if places.here else 0
    return measured.model_copy(
        update={
            "peak_bytes": python + max(measured.model_bytes, own),
            "num_on_node": places.elsewhere,
            "node_bytes": each * places.elsewhere + python,
        }
    )
