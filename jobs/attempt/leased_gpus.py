"""Whether the GPUs that a job has leased are still there when it starts; without them it would compute on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from engine.gpus import Gpu, find_gpus
from jobs.attempt.work import Work
from workbench.errors import LostGpu
from workbench.job_records import devices


def require_leased_gpus(work: Work) -> None:
    """Raises LostGpu when a leased GPU is gone, after which it is not offered to jobs; pretended ones are left out."""
    if not work.claim.gpus or work.settings.launcher != "local":
        return
    with work.reading() as session:
        leased = devices.leased_gpus(session, work.job_id, work.claim.fence)
    if not leased:
        return
    if _num_usable() >= len(leased):
        _bound_memory(work.claim.gpu_share)
        return
    lost = _missing(leased) or leased
    with work.transaction() as session:
        devices.withdraw_lost(session, work.job_id, work.claim.fence, [gpu.uuid for gpu in lost])
    names = " and ".join(f"GPU {gpu.address} ({gpu.name})" for gpu in lost)
    raise LostGpu(
        f"Its worker's {names} cannot be used any more.", "Check it with nvidia-smi, then restart the worker."
    )


def _num_usable() -> int:
    """The GPUs that this process can use, which sees no others than the leased ones."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _bound_memory(share: float) -> None:
    """Has torch refuse this process more of the GPU's memory than its share; what CUDA itself takes comes on top."""
    import torch

    if share < 1:
        torch.cuda.set_per_process_memory_fraction(share)


def _missing(leased: Sequence[Gpu]) -> list[Gpu]:
    """Those that a process of its own does not see: without one, CUDA hides the later ones, too."""
    return [gpu for gpu in leased if gpu.uuid not in {there.uuid for there in find_gpus(gpu.address)}]
