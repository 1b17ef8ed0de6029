"""Whether the GPUs that a job has leased are still there when it starts; without them it would compute on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

from engine.gpus import Gpu, find_gpus
from jobs.attempt.work import Work
from workbench.errors import LostGpuError
from workbench.job_records import devices


def require_leased_gpus(work: Work) -> None:
    """Raises LostGpuError when a leased GPU is gone; jobs are not offered it any more. Pretended GPUs are left out."""
    leased = [gpu for gpu in work.claim.gpus if gpu.memory_bytes]
    if not leased or work.settings.launcher != "local":
        return
    if _sees(leased):
        _bound_memory(work.claim.gpu_share)
        return
    lost = _missing(leased) or leased
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


def _missing(leased: Sequence[Gpu]) -> list[Gpu]:
    """Those that a process of its own does not see: without one, CUDA hides the later ones, too."""
    return [gpu for gpu in leased if gpu.uuid not in {there.uuid for there in find_gpus(gpu.visible)}]
