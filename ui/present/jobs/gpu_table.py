"""The GPUs of all workers as rows of a table: who uses each."""

from __future__ import annotations

from ui.present.text.formatting import size
from workbench.answers.cards import DeviceCard


def gpu_row(device: DeviceCard) -> dict[str, str]:
    """One GPU as a row."""
    return {
        "GPU": f"{device.host}/{device.number}",
        "Model": device.name or "pretended",
        "Memory": size(device.memory_bytes) if device.memory_bytes else "",
        "Job": holders_of(device),
        "API server": ", ".join(f"{one.address}, at most {size(one.most_bytes)}" for one in device.tenants),
        "Status": status_of(device),
    }


def holders_of(device: DeviceCard) -> str:
    """The titles of the jobs that have leased it, each with its share where that is not all."""
    parts = [one.title if one.share == 1 else f"{one.title} ({one.share:.0%})" for one in device.holders]
    return ", ".join(parts)


def status_of(device: DeviceCard) -> str:
    """Whether a job has leased the GPU, or could."""
    if device.holders:
        used = f"{1.0 - device.free_share:.0%}"
        return "in use" if used == "100%" else f"{used} in use"
    if device.is_lost:
        return "cannot be used any more"
    return "free" if device.is_there else "its worker is gone"
