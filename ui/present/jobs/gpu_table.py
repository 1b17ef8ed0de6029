"""The GPUs of all workers as rows of a table: who uses each."""

from __future__ import annotations

from ui.present.text.formatting import size
from workbench.registry.cards import DeviceCard


def gpu_row(device: DeviceCard) -> dict[str, str]:
    """One GPU as a row."""
    return {
        "GPU": f"{device.host}/{device.number}",
        "Model": device.name or "pretended",
        "Memory": size(device.memory_bytes) if device.memory_bytes else "",
        "Job": device.holder.title if device.holder else "",
        "API server": ", ".join(f"{one.address}, at most {size(one.most_bytes)}" for one in device.tenants),
        "Status": status_of(device),
    }


def status_of(device: DeviceCard) -> str:
    """Whether a job has leased the GPU, or could."""
    if device.holder is not None:
        return "in use"
    return "free" if device.is_there else "its worker is gone"
