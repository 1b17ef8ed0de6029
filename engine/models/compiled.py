"""torch.compile for the loss of a model that trains: few kernels in place of many passes over its logits.

Only the loss is compiled. Compiled layers were slower on a GPU (0.87 of the tokens per second of a DEMix model of eight
experts, H100): each choice of an expert breaks their graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import EngineError, ModelError

_MARK = "_engine_compiles_loss"
_BACKEND = "inductor"


@contextmanager
def compiled_loss(lm: Any) -> Iterator[None]:
    """Within it, `cross_entropy_of` this decoder is compiled."""
    setattr(lm, _MARK, True)
    try:
        yield
    finally:
        delattr(lm, _MARK)


def cross_entropy_of(lm: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The function that makes float32 losses [N] in nats of logits [N, V] and targets [N]."""
    return _compiled_cross_entropy() if getattr(lm, _MARK, False) else _cross_entropy


def compiling_failed(error: Exception) -> EngineError | None:
    """The error for a training whose loss torch.compile could not compile; None where the cause is another."""
    if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return None
    reason = " ".join(str(error).split("\n\n")[0].split())[:300] or type(error).__name__
    return ModelError(
        f"torch.compile failed: {reason}", "Install a C++ compiler (and, for a GPU, Triton), or train without compile."
    )


def _cross_entropy(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits_NV.float(), targets_N, reduction="none")


@cache
def _compiled_cross_entropy() -> Callable[[Tensor, Tensor], Tensor]:
    function: Callable[[Tensor, Tensor], Tensor] = torch.compile(_cross_entropy, dynamic=True, backend=_BACKEND)
    return function
