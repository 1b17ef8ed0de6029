"""Tensors of which a process may hold a part alone (`engine.training.sharding`)."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def local_part(tensor: Tensor) -> Tensor:
    """The part that this process holds, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def part_like(full: Tensor, own: Tensor) -> Tensor:
    """The part of a full tensor that corresponds to what this process holds of `own`; a number stays as it is."""
    if not isinstance(own, DTensor) or full.dim() == 0:
        return full
    return distribute_tensor(full.to(own.device), own.device_mesh, own.placements, src_data_rank=None)


def copy_aside(tensor: Tensor) -> Tensor:
    """A copy without gradients: in the main memory, or of a part where the part is."""
    detached = tensor.detach()
    return detached.clone() if isinstance(tensor, DTensor) else detached.to("cpu", copy=True)
