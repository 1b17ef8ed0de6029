"""How the layers of a model that trains are run: compiled, or computed again in the backward pass.

torch.compile makes few kernels in place of many passes over memory.

Layers are compiled for the rows of the training's batches: a choice of experts that may change would break their
graphs, and a layer in pieces is slower than one that is not compiled. All layers of one shape share one compilation.

With activation checkpointing layers keep only their input. It takes about a third more operations, and memory for the
activations of one layer in place of all. Losses and gradients stay the same to the bit: random numbers are drawn as in
the first pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from engine.errors import EngineError, ModelError
from engine.models.discovery import family_of, routers
from engine.models.families import layout_of
from engine.models.rows import Rows, are_current, compile_for, rows_again

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


@contextmanager
def compiled_layers(lm: Any, rows: Rows) -> Iterator[None]:
    """Within it, passes with gradients over these rows run compiled layers; others, as of held-out text, do not.

    A mixture of experts is left as it is: which of its networks a token takes depends on the data. So are layers that
    are computed again in the backward pass, which torch.compile cannot follow there.
    """
    layers = [] if routers(lm) else list(lm.get_submodule(layout_of(lm).layers).children())
    compile_for(rows)
    for layer in layers:
        layer.forward = _compile_for_rows(rows, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
        torch.compiler.reset()  # a process has a limited number of compilations of the same code


def _compile_for_rows(rows: Rows, layer: Any) -> Callable[..., Any]:
    forward = layer.forward
    compiled = torch.compile(forward, dynamic=False, backend=_BACKEND)

    @wraps(forward)
    def run_layer(*inputs: Any, **options: Any) -> Any:
        is_again = getattr(layer, "gradient_checkpointing", False)
        is_compiled = torch.is_grad_enabled() and are_current(rows) and not is_again
        return (compiled if is_compiled else forward)(*inputs, **options)

    return run_layer


def cross_entropy_of(lm: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The function that makes float32 losses [N] in nats of logits [N, V] and targets [N]."""
    return _compile_cross_entropy() if getattr(lm, _MARK, False) else _cross_entropy


def compiling_failed(error: Exception) -> EngineError | None:
    """The error for a training that torch.compile could not compile; None where the cause is another."""
    if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return None
    reason = " ".join(str(error).split("\n\n")[0].split())[:300] or type(error).__name__
    return ModelError(
        f"torch.compile failed: {reason}", "Install a C++ compiler (and, for a GPU, Triton), or train without compile."
    )


def _cross_entropy(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits_NV.float(), targets_N, reduction="none")


@cache
def _compile_cross_entropy() -> Callable[[Tensor, Tensor], Tensor]:
    function: Callable[[Tensor, Tensor], Tensor] = torch.compile(_cross_entropy, dynamic=True, backend=_BACKEND)
    return function


@contextmanager
def checkpointed_activations(lm: nn.Module) -> Iterator[None]:
    """Within it, the layers of a decoder that are in training mode keep no activations for the backward pass.

    Raises ModelError for a family whose layers transformers cannot checkpoint.
    """
    layers = checkpointable_layers(lm)
    if not layers:
        raise ModelError(
            f"Layers of the family “{family_of(lm)}” cannot checkpoint activations in this version of transformers.",
            "Train without activation_checkpointing; fewer or shorter sequences in a batch also save memory.",
        )
    for layer in layers:
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = partial(
            checkpoint,
            use_reentrant=False,
            context_fn=lambda: (nullcontext(), rows_again()),  # of the second pass the rows are no longer set
        )
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = False


def checkpointable_layers(lm: nn.Module) -> list[Any]:
    """The layers of a decoder that transformers can compute again."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in lm.modules() if isinstance(module, GradientCheckpointingLayer)]
