"""The precision of updates and of held-out losses.

What is trained is held in float32 as long as it is trained: an update is often smaller than the steps of bfloat16. Or,
to save memory, in bfloat16, with updates that are rounded up or down at random (`engine.training.low_bits`).
Frozen weights stay as they are stored in bf16, where autocast computes with both; in fp32 they are held in float32,
which loses nothing. After the training all have their stored precision again, as they will have when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from engine.config import Precision

_FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16))


class HasTensors(Protocol):
    """A module, or what has one's weights."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def buffers(self) -> Iterator[Tensor]: ...


def precision_on(precision: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """The precision of passes on a device: auto is bf16 on a GPU with units for it, fp32 elsewhere."""
    if precision != "auto":
        return "fp32" if precision == "fp32" else "bf16"
    has_units = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_units else "fp32"


def autocast_for(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast for a precision on a device; for this thread only (`engine.inference.scores` enters its own)."""
    is_mixed = precision_on(precision, device) == "bf16"
    return torch.autocast(device.type, torch.bfloat16) if is_mixed else nullcontext()


@contextmanager
def in_training_precision(
    model: HasTensors, trained: Iterable[Tensor], precision: Precision, device: torch.device
) -> Iterator[None]:
    """Holds weights as `hold_in_training_precision` does; brings them to their stored precision at the end.

    The weights stay the same objects, so views and ties of them hold.
    """
    stored = hold_in_training_precision(model, trained, precision, device)
    try:
        yield
    finally:
        for one, dtype in stored:
            one.grad = None
            one.data = one.data.to(dtype)


def hold_in_training_precision(
    model: HasTensors, trained: Iterable[Tensor], precision: Precision, device: torch.device
) -> list[tuple[Tensor, torch.dtype]]:
    """Holds trained weights in float32, and in fp32 also all others; in bf16_weights trained ones in bfloat16.

    Returns those that changed, with their stored precision.
    """
    every = chain(model.parameters(), model.buffers()) if precision_on(precision, device) == "fp32" else trained
    held = torch.bfloat16 if precision == "bf16_weights" else torch.float32
    stored = {id(one): (one, one.dtype) for one in every if one.dtype in _FLOATS - {held}}
    for one, _ in stored.values():
        one.data = one.data.to(held)
    return list(stored.values())
