"""A second device where there is none: tensors that say they lie on `meta`, and are computed by the CPU all the same.

As between real devices, nothing passes but by a copy, and an operation on tensors of both is refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
_COPY = torch.ops.aten._to_copy.default


class There(Tensor):
    """A tensor of the second device; `inner` is its content."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> There:
        there = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        there.inner = inner
        return there

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for leave in tree_leaves((args, kwargs)):
            if isinstance(leave, Tensor) and not isinstance(leave, There) and leave.dim():
                raise RuntimeError(f"{func} was given tensors of two devices.")
        result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if func is _COPY and kwargs.get("device", DEVICE) != DEVICE:
            return result
        result = tree_map(lambda one: There(one) if isinstance(one, Tensor) else one, result)
        return return_and_correct_aliasing(func, args, kwargs, result)


class SecondDevice(TorchDispatchMode):
    """While it is on, copies to the second device, and what is made there, are there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **tree_map(_inner, kwargs))
        is_made_there = kwargs.get("device") == DEVICE and not isinstance(result, There)
        return There(result) if is_made_there else result


def _inner(value: Any) -> Any:
    if isinstance(value, There):
        return value.inner
    return torch.device("cpu") if value == DEVICE and isinstance(value, torch.device) else value
