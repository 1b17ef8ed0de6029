"""Registers this machine's GPUs while a worker runs, and an API server on its GPU, with a heartbeat."""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

from sqlalchemy.orm import Session

from engine.device import Gpu, find_gpus
from engine.training import launchers
from jobs.attempt.attempt import host_name, new_owner
from workbench.errors import BadSpecError, DiskFullError, NoRegistryError
from workbench.job_records import devices
from workbench.job_records.devices import DevicePool
from workbench.registry import database
from workbench.settings import Settings

_WITHOUT_GPU = ("cpu", "mps", "meta")


def gpus_of(settings: Settings, find: Callable[[], list[Gpu]] = find_gpus) -> list[Gpu]:
    """The GPUs that a worker with these settings leases to jobs. Raises BadSpecError for a number that is not there."""
    if settings.launcher != "local":
        return slots_of(settings)
    kind, _, only = settings.device.partition(":")
    if kind in _WITHOUT_GPU:
        return []
    present, wanted = find(), settings.gpu_numbers or ([int(only)] if only.isdigit() else [])
    if not present:
        return [Gpu(f"pretended-{number}-{host_name()[:40]}", str(number)) for number in settings.gpu_numbers]
    missing = [str(number) for number in wanted if number >= len(present)]
    if missing:
        raise BadSpecError(
            [f"GPU {', '.join(missing)} does not exist: this process sees {len(present)}, numbered from 0."],
            "Correct WORKBENCH_GPUS or WORKBENCH_DEVICE.",
        )
    return [present[number] for number in wanted] or present


def slots_of(settings: Settings) -> list[Gpu]:
    """The slots of the hostfile, which jobs lease as GPUs; none where Slurm leases them. Raises TrainingError."""
    if settings.launcher == "slurm":
        return []
    if not settings.hostfile:
        raise BadSpecError(["WORKBENCH_LAUNCHER=ssh needs a hostfile."], "Set WORKBENCH_HOSTFILE.")
    if shutil.which(shlex.split(settings.remote_shell)[0]) is None:
        raise BadSpecError([f"The remote shell “{settings.remote_shell}” is not here."], "Set WORKBENCH_REMOTE_SHELL.")
    names = launchers.slots_of(launchers.read_hostfile(Path(settings.hostfile)))
    return [Gpu(uuid=name, number=name, name=devices.SLOT_NAME) for name in names]


def reachable(settings: Settings, gpus: list[Gpu]) -> list[Gpu]:
    """Those GPUs whose machine can be reached; this machine can."""
    if settings.launcher != "ssh":
        return gpus
    hosts = {gpu.number.rpartition("/")[0] for gpu in gpus}
    shell, seconds = shlex.split(settings.remote_shell), min(10.0, settings.lease_seconds / 3)
    there = launchers.reachable_hosts(hosts, shell, settings.root, seconds)
    return [gpu for gpu in gpus if gpu.number.rpartition("/")[0] in there]


@contextmanager
def register_gpus(settings: Settings, find: Callable[[], list[Gpu]] = find_gpus) -> Iterator[DevicePool]:
    """Registers this machine's GPUs while the block lasts, and yields them as a pool for jobs."""
    gpus, host, worker = gpus_of(settings, find), host_name(), new_owner()
    pool = DevicePool(host, tuple(gpu.uuid for gpu in gpus))
    if not gpus:
        yield pool
        return

    beats = count()

    def register() -> None:
        there, is_renewal = reachable(settings, gpus), next(beats) > 0  # before the transaction: it may take seconds
        now = partial(devices.register, host=host, worker=worker, gpus=there, is_renewal=is_renewal)
        _write(settings, partial(now, seconds=settings.lease_seconds))

    def withdraw(session: Session) -> None:
        devices.withdraw(session, worker)

    with _heartbeat(settings, register, withdraw):
        yield pool


@contextmanager
def tenancy(settings: Settings, uuid: str, address: str) -> Iterator[None]:
    """Registers an API server on a GPU while the block lasts; without a GPU it does nothing.

    The bound of its memory is that of the cache for models and generations.
    """
    if not uuid:
        yield
        return
    register = partial(
        devices.register_tenant, host=host_name(), uuid=uuid, tenant=address, most_bytes=settings.cache_bytes
    )
    renew = partial(register, seconds=settings.lease_seconds)
    with _heartbeat(settings, partial(_write, settings, renew), partial(register, seconds=0.0)):
        yield


@contextmanager
def _heartbeat(settings: Settings, beat: Callable[[], None], withdraw: Callable[[Session], None]) -> Iterator[None]:
    """Calls `beat` at once and then from a thread, also while the registry is away, and `withdraw` at the end."""
    over, seconds = threading.Event(), min(settings.heartbeat_seconds, settings.lease_seconds / 3)

    def repeat() -> None:
        while not over.wait(seconds):
            try:
                beat()
            except Exception as error:  # such as no process or file left: the next beat may have one
                print(f"The registration of devices failed: {error}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=repeat, name="device heartbeat", daemon=True)
    try:
        beat()
        thread.start()
        yield
    finally:  # a worker ends by sys.exit
        over.set()
        if thread.ident is not None:
            thread.join()
        with suppress(NoRegistryError, DiskFullError), database.transaction(settings) as session:
            withdraw(session)


def _write(settings: Settings, write: Callable[[Session], None]) -> None:
    try:
        with database.transaction(settings) as session:
            write(session)
    except (NoRegistryError, DiskFullError) as problem:
        print(problem, file=sys.stderr, flush=True)
