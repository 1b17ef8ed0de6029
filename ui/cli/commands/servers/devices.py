"""workbench devices: the GPUs of all workers."""

from __future__ import annotations

from ui.cli.verbs import Column, lists, read
from ui.present.jobs.job_status import holders_of, status_of
from ui.present.text.formatting import size
from workbench.answers.cards import DeviceCard


def _short(ids: str) -> str:
    return ", ".join(id[:8] for id in ids.split(", "))


_COLUMNS = (
    Column("GPU", lambda one: f"{one.host}/{one.number}"),
    Column("Status", status_of),
    Column("Job", holders_of),
    Column("Job ID", lambda one: ", ".join(holder.job_id for holder in one.holders), _short),
    Column("API server", lambda one: ", ".join(tenant.address for tenant in one.tenants)),
    Column("Model", lambda one: one.name or "pretended"),
    Column("Memory", lambda one: one.memory_bytes, lambda count: size(count) if count else ""),
)


@lists(_COLUMNS, empty="No worker has registered a GPU: jobs compute on the CPU.", noun="GPU")
def devices() -> list[DeviceCard]:
    """List the GPUs that workers lease to jobs, and the jobs and API servers that use them."""
    from workbench.job_records.devices import list_devices

    return read(list_devices)
