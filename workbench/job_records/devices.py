"""Devices: workers register the GPUs of their hosts, and a job leases some in the transaction that claims it.

A device row names the job and the fence under which it was leased whole; rows of shares name those that have a part of
it. The lease is valid as long as this job runs under this fence: it needs no heartbeat, and ends however the job's
claim ends. A job whose heartbeat stopped keeps its devices until it is taken back, because until then it may renew its
lease.
All times are those of the database's clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, case, delete, exists, or_, select, update
from sqlalchemy.orm import Session

from engine.device import Gpu
from workbench.answers.cards import DeviceCard, DeviceHolder, DeviceTenantCard
from workbench.errors import BadSpecError, DevicesBusyError
from workbench.kinds.kind import kind_named
from workbench.schema import database_clock
from workbench.schema.database_clock import for_update, without_sync
from workbench.schema.job_tables import Device, DeviceShare, DeviceTenant, Job
from workbench.settings import Settings
from workbench.specs.base import Spec

FORGET_SECONDS = 86_400.0  # after which a device that no worker registers any more has no row
_ROUNDING = 1e-6  # shares such as 0.1 do not add up exactly
_NOBODY = ""  # the worker of a GPU that was lost
SLOT_NAME = "slot of the hostfile"  # in the place of a GPU's name: its number is that of a slot of another machine


@dataclass(frozen=True)
class DevicePool:
    """The GPUs that one worker may lease to its jobs."""

    host: str
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceNeed:
    """How many GPUs of one worker a job takes; on the CPU where there is none, unless it requires them."""

    count: int = 0
    is_required: bool = False
    share: float = 1.0  # of the one GPU, where that is not taken whole


def need_of(session: Session, kind: str, spec: Mapping[str, Any], settings: Settings) -> DeviceNeed:
    """What a job with this spec takes: what it asks for, or one for a kind that computes on a GPU."""
    try:
        described = kind_named(kind)
    except BadSpecError:  # its plug-in is not installed here
        return DeviceNeed()
    requested = int(spec.get("num_gpus", 0))
    share = _share(spec, settings)
    if requested:
        # Slurm leases GPUs itself.
        return DeviceNeed(0 if settings.launcher == "slurm" else requested, is_required=True, share=share)
    if share < 1:
        return DeviceNeed(1 if described.computes_on_gpu(session, spec) else 0, share=share)
    spread = max(1, settings.processes) if described.spreads(spec) else 1
    return DeviceNeed(spread if described.computes_on_gpu(session, spec) else 0)


def share_of_gpu(spec: Spec, settings: Settings) -> float:
    """The share of a GPU that a job leases; 1 where it leases whole ones, or none."""
    return _share(spec.model_dump(), settings)


def _share(spec: Mapping[str, Any], settings: Settings) -> float:
    return float(spec.get("gpu_share", 1.0)) if settings.launcher == "local" else 1.0  # slots are taken whole


def register(
    session: Session, host: str, worker: str, gpus: Iterable[Gpu], seconds: float, *, is_renewal: bool = False
) -> None:
    """Registers the GPUs of a host for some seconds; to be repeated by the worker before they are over.

    A renewal leaves out GPUs that were lost since the worker listed them.
    """
    now = database_clock.now(session)
    session.execute(without_sync(delete(Device).where(Device.seen_until < now - FORGET_SECONDS)))
    runs = exists().where(Job.id == DeviceShare.job_id, Job.fence == DeviceShare.fence, Job.state == "running")
    session.execute(without_sync(delete(DeviceShare).where(~runs.correlate(DeviceShare))))
    for gpu in sorted(gpus, key=lambda gpu: gpu.uuid):  # always in this order: two workers do not block each other
        row = session.get(Device, (host, gpu.uuid), with_for_update=True, populate_existing=True)
        if row is None:
            row = Device(host=host, uuid=gpu.uuid)
            session.add(row)
        elif is_renewal and row.worker == _NOBODY:
            row.seen_until = now - FORGET_SECONDS / 2  # not there, but not forgotten while its worker lives
            continue
        row.number, row.address = gpu.number, gpu.address
        row.name, row.memory_bytes = gpu.name[:120], gpu.memory_bytes
        row.worker, row.seen_until = worker[:120], now + seconds


def withdraw_host(session: Session, name: str) -> None:
    """Ends the registration of a hostfile's host that was lost; it is registered again once it can be reached."""
    now, slots = database_clock.now(session), Device.uuid.startswith(f"{name}/", autoescape=True)
    session.execute(without_sync(update(Device).where(slots).values(seen_until=now)))


def withdraw_lost(session: Session, job_id: str, fence: int, uuids: Iterable[str]) -> None:
    """Ends the registration of leased GPUs that are gone; a worker that starts and lists them registers them again."""
    own = (DeviceShare.host == Device.host, DeviceShare.uuid == Device.uuid)
    in_part = exists().where(*own, DeviceShare.job_id == job_id, DeviceShare.fence == fence).correlate(Device)
    is_leased = or_(and_(Device.job_id == job_id, Device.fence == fence), in_part)
    lost = update(Device).where(is_leased, Device.uuid.in_(list(uuids)))
    session.execute(without_sync(lost.values(seen_until=database_clock.now(session), worker=_NOBODY)))


def withdraw(session: Session, worker: str) -> None:
    """Ends the registration of a worker that stops."""
    now = database_clock.now(session)
    session.execute(without_sync(update(Device).where(Device.worker == worker[:120]).values(seen_until=now)))


def lease(session: Session, job_id: str, fence: int, pool: DevicePool, need: DeviceNeed) -> list[Gpu]:
    """Leases GPUs to a job that was claimed in this transaction, and returns them.

    Those that no API server shares come first. Empty for a job that takes none, or that can do without on a host that
    has none. Raises DevicesBusyError if there are too few, which must roll the claim back.
    """
    if not need.count or (not pool.uuids and not need.is_required):
        return []
    shared = exists().where(DeviceTenant.uuid == Device.uuid, DeviceTenant.seen_until > database_clock.now(session))
    order = (case((shared.correlate(Device), 1), else_=0), Device.number, Device.uuid)
    rows = list(session.scalars(for_update(_in_pool(session, pool).order_by(Device.uuid, Device.host))))
    ranked = session.scalars(select(Device.uuid).where(Device.host == pool.host).order_by(*order)).all()
    held, own = _leases_by_gpu(session, rows), {row.uuid: row for row in rows if row.host == pool.host}
    chosen = choose_gpus({uuid: _free_share(held.get(uuid, ())) for uuid in ranked if uuid in own}, need)
    if not chosen:
        raise DevicesBusyError(need.count, sum(is_free(_free_share(held.get(uuid, ()))) for uuid in own), need.share)
    for uuid in chosen:
        if need.share < 1:
            session.execute(delete(DeviceShare).where(DeviceShare.uuid == uuid, DeviceShare.job_id == job_id))
            session.add(DeviceShare(host=pool.host, uuid=uuid, job_id=job_id, fence=fence, share=need.share))
        else:
            own[uuid].job_id, own[uuid].fence = job_id, fence
    session.flush()
    rows = [own[uuid] for uuid in chosen]
    return [Gpu(row.uuid, row.number, row.name, row.memory_bytes, row.address) for row in rows]


def choose_gpus(free: Mapping[str, float], need: DeviceNeed) -> list[str]:
    """The GPUs that a job with this need takes of those, by how much of each is free; empty if it does not fit.

    A share goes to the GPU that is used most, so that others stay whole; without a difference to the first.
    """
    if need.share < 1:
        fits = [uuid for uuid, free_share in free.items() if free_share + _ROUNDING >= need.share]
        return [min(fits, key=lambda uuid: round(free[uuid], 6))] if fits else []
    unused = [uuid for uuid, free_share in free.items() if is_free(free_share)]
    return unused[: need.count] if len(unused) >= need.count else []


def is_free(free_share: float) -> bool:
    """Whether so much of a GPU is all of it."""
    return free_share + _ROUNDING >= 1


def num_there(session: Session, pool: DevicePool) -> int:
    """How many GPUs of a pool are there now: hosts of a hostfile may be lost."""
    return len({row.uuid for row in session.scalars(_in_pool(session, pool)) if row.host == pool.host})


def free_of(session: Session, pool: DevicePool) -> tuple[dict[str, float], set[str]]:
    """How much of each GPU of a pool is free, by UUID, and the ids of the jobs that have leased the rest."""
    rows = session.scalars(_in_pool(session, pool).order_by(Device.number, Device.uuid)).all()
    held = _leases_by_gpu(session, rows)
    holders = {job.id for leased in held.values() for job, _ in leased}
    return {row.uuid: _free_share(held.get(row.uuid, ())) for row in rows if row.host == pool.host}, holders


def _in_pool(session: Session, pool: DevicePool) -> Select[Device]:
    """The rows of a pool's GPUs that are there now.

    Another host may have the same ones: containers of one machine are hosts of their own.
    """
    return select(Device).where(Device.uuid.in_(pool.uuids), Device.seen_until > database_clock.now(session))


_Leased = tuple[Job, float]  # a job and its share of a GPU


def _leases_by_gpu(session: Session, rows: Iterable[Device]) -> dict[str, list[_Leased]]:
    """The jobs that have leased these devices, each with its share, by UUID."""
    rows = list(rows)
    uuids = {row.uuid for row in rows}
    statement = select(DeviceShare).where(DeviceShare.uuid.in_(uuids)).order_by(DeviceShare.job_id)
    shares = session.scalars(statement.execution_options(populate_existing=True)).all()
    leased = [(row.uuid, row.job_id, row.fence, 1.0) for row in rows if row.job_id is not None]
    leased += [(one.uuid, one.job_id, one.fence, one.share) for one in shares]
    if not leased:
        return {}
    running = select(Job).where(Job.id.in_({job_id for _, job_id, _, _ in leased}), Job.state == "running")
    jobs = {(job.id, job.fence): job for job in session.scalars(running.execution_options(populate_existing=True))}
    held: defaultdict[str, list[_Leased]] = defaultdict(list)
    for uuid, job_id, fence, share in leased:
        if (job_id, fence) in jobs:
            held[uuid].append((jobs[job_id, fence], share))
    return held


def _free_share(leased: Iterable[_Leased]) -> float:
    return 1.0 - sum(share for _, share in leased)


def register_tenant(session: Session, host: str, uuid: str, tenant: str, *, most_bytes: int, seconds: float) -> None:
    """Registers an API server on a GPU for some seconds; to be repeated before they are over."""
    now = database_clock.now(session)
    session.execute(without_sync(delete(DeviceTenant).where(DeviceTenant.seen_until < now - FORGET_SECONDS)))
    values = {"most_bytes": most_bytes, "seen_until": now + seconds}
    session.merge(DeviceTenant(host=host, uuid=uuid, tenant=tenant[:200], **values))


def list_devices(session: Session) -> list[DeviceCard]:
    """Every registered GPU by host and number, with the job that has leased it and the API servers that share it."""
    now = database_clock.now(session)
    rows = session.scalars(select(Device).execution_options(populate_existing=True)).all()
    tenants = session.scalars(select(DeviceTenant).where(DeviceTenant.seen_until > now)).all()
    held = _leases_by_gpu(session, rows)
    cards = [_card(row, now, held.get(row.uuid, ()), tenants) for row in rows]
    return sorted(cards, key=lambda card: (card.host, len(card.number), card.number))


def _card(row: Device, now: float, held: Iterable[_Leased], tenants: Sequence[DeviceTenant]) -> DeviceCard:
    here = [tenant for tenant in tenants if tenant.uuid == row.uuid]
    return DeviceCard.from_fields(
        row,
        is_there=row.seen_until > now,
        holders=[
            DeviceHolder(job_id=job.id, title=job.title, share=share)
            for job, share in sorted(held, key=lambda one: one[0].title)
        ],
        tenants=[DeviceTenantCard(address=one.tenant, most_bytes=one.most_bytes) for one in here],
    )


def waits_for(need: DeviceNeed, devices: Collection[DeviceCard]) -> str:
    """Why no worker can start a job with this need now, as a sentence; empty if one can, or there is no GPU at all."""
    there = [device for device in devices if device.is_there]
    totals: defaultdict[tuple[str, str], list[DeviceCard]] = defaultdict(list)
    for device in there:
        totals[device.host, device.worker].append(device)
    largest = max(map(len, totals.values()), default=0)
    if not need.count:
        return ""
    if not there and (lost := [f"{device.host}/{device.number}" for device in devices if device.is_lost]):
        gone = f"{' and '.join(lost)} cannot be used any more"
        return f"Waits for {_need_text(need)}: {gone}. Check with nvidia-smi, then restart the worker."
    if not there and not need.is_required:
        return ""
    if need.count > largest:
        most = f"more than {largest}" if largest else "any"
        gpus = "1 GPU" if need.count == 1 else f"{need.count} GPUs of one worker"
        if not need.is_required:
            return f"It needs {gpus}, but no worker has {most}: start one that has, or lower WORKBENCH_PROCESSES."
        return (  # a worker that has them from Slurm registers none
            f"It needs {gpus}, but no worker has registered {most}. A worker that has takes it, or one with "
            "WORKBENCH_LAUNCHER=slurm, to which Slurm gives the GPUs; or submit it with fewer."
        )
    if any(choose_gpus({device.uuid: device.free_share for device in own}, need) for own in totals.values()):
        return ""
    taken = [device for device in there if device.holders]
    titles = list(dict.fromkeys(holder.title for device in taken for holder in device.holders))
    by = " and ".join(f"“{title}”" for title in titles[:2]) + (f" and {len(titles) - 2} more" if titles[2:] else "")
    verb = "is" if len(taken) == 1 else "are"
    return f"Waits for {_need_text(need)}: {len(taken)} of {len(there)} {verb} in use by {by}."


def _need_text(need: DeviceNeed) -> str:
    if need.share < 1:
        return f"{need.share:g} of a GPU"
    return "a GPU" if need.count == 1 else f"{need.count} GPUs of one worker"
