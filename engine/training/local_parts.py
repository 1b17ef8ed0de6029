"""Tensors of which a process may hold a part alone (`engine.training.sharding`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_divided(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether this process holds only a part. Imports nothing: half a second, for every undivided training."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Tensor) -> Tensor:
    """The part that this process holds, in the same memory."""
    return tensor.to_local() if is_divided(tensor) else tensor


def first_row(tensor: Tensor) -> int:
    """Where the part that this process holds begins in the full tensor: FSDP2 divides rows, in order."""
    if not is_divided(tensor):
        return 0
    rows, mesh = tensor.shape[0], tensor.device_mesh
    assert mesh.ndim == 1
    assert [placement.is_shard(0) for placement in tensor.placements] == [True]
    return min(rows, mesh.get_local_rank() * -(-rows // mesh.size()))


def part_like(full: Tensor, own: Tensor) -> Tensor:
    """The part of a full tensor that corresponds to what this process holds of `own`; a number stays as it is."""
    if not is_divided(own) or full.dim() == 0:
        return full
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full.to(own.device), own.device_mesh, own.placements, src_data_rank=None)


def copy_aside(tensor: Tensor) -> Tensor:
    """A copy without gradients: in the main memory, or of a part where the part is."""
    detached = tensor.detach()
    return detached.clone() if is_divided(tensor) else detached.to("cpu", copy=True)
