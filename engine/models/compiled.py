"""torch.compile for the layers and the loss of a model that trains: fewer and larger kernels on a GPU.

Each layer is compiled by itself, and all share the code of one, so that it takes seconds, not minutes. What chooses the
expert of a row stays as it is (`torch.compiler.disable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import EngineError, ModelError
from engine.models.activation_checkpointing import layers_of

_MARK = "_engine_is_compiled"
_BACKEND = "inductor"


@contextmanager
def compiled(lm: Any) -> Iterator[None]:
    """Within it, the layers of a decoder are compiled, and so is `cross_entropy_of` it.

    Raises ModelError for a family whose layers cannot be found.
    """
    layers = layers_of(lm)
    if not layers:
        raise ModelError(
            f"Layers of the family “{getattr(getattr(lm, 'config', None), 'model_type', 'unknown')}” cannot be "
            "compiled: transformers does not mark them.",
            "Train without compile.",
        )
    for layer in layers:
        layer.compile(backend=_BACKEND)
    setattr(lm, _MARK, True)
    try:
        yield
    finally:
        delattr(lm, _MARK)
        for layer in layers:
            layer._compiled_call_impl = None


def cross_entropy_of(lm: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The function that makes float32 losses [N] in nats of logits [N, V] and targets [N]: compiled with the layers."""
    return _compiled_cross_entropy() if getattr(lm, _MARK, False) else _cross_entropy


def compiling_failed(error: Exception) -> EngineError | None:
    """The error for a training whose layers torch.compile could not compile; None where the cause is another."""
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
