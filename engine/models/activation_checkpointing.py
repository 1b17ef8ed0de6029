"""Activation checkpointing: layers keep their input alone and are computed again in the backward pass.

It takes about a third more operations, and memory for the activations of one layer in place of all. Losses and
gradients stay the same to the bit: random numbers are drawn as in the first pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from engine.errors import ModelError
from engine.models.rows import rows_again


@contextmanager
def checkpointed_activations(lm: nn.Module) -> Iterator[None]:
    """Within it, the layers of a decoder that are in training mode keep no activations for the backward pass.

    Raises ModelError for a family whose layers transformers cannot checkpoint.
    """
    layers = _layers(lm)
    if not layers:
        raise ModelError(
            f"Layers of the family “{getattr(getattr(lm, 'config', None), 'model_type', 'unknown')}” cannot checkpoint "
            "activations in this version of transformers.",
            "Train without activation_checkpointing; fewer or shorter sequences in a batch save memory, too.",
        )
    for layer in layers:
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False, context_fn=_contexts)
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = False


def can_checkpoint_activations(lm: nn.Module) -> bool:
    """Whether the decoder has layers that transformers can compute again."""
    return bool(_layers(lm))


def _layers(lm: nn.Module) -> list[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in lm.modules() if isinstance(module, GradientCheckpointingLayer)]


def _contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Of the first pass and of the second, which runs when its rows are no longer set."""
    return nullcontext(), rows_again()
