"""Logits from a decoder's last hidden states, with whatever a family does around its output embeddings.

Some scale logits, cap them, or transform the states first. That is code of each family's own forward pass, so it is
run as it is, with a decoder in front that answers with the given states.

Shapes: B rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class _Read:
    """Answers like a decoder that has read something already, and like what that decoder gives back."""

    def __init__(self, decoder: nn.Module, hidden_BTD: Tensor) -> None:
        self._decoder = decoder  # whose numbers some heads look up
        self.last_hidden_state = hidden_BTD

    def __call__(self, *_: Any, **__: Any) -> _Read:
        return self

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):  # everything else that a decoder gives back
            return (self.last_hidden_state, None)[index]
        return self.last_hidden_state if index == 0 else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self if name in ("decoder", "language_model", "model") else getattr(self._decoder, name, None)


def decoder_of(lm: Any) -> Any:
    """The model without its output embeddings; its answer has `last_hidden_state`."""
    return lm.model if lm.base_model is lm else lm.base_model


def head_of(lm: Any) -> Callable[[Tensor], Tensor]:
    """The function from hidden states [B, T, D] to logits [B, T, V] that the model's own forward pass ends with.

    It runs no layer and changes nothing: any number of threads may call it.
    """
    if not isinstance(lm, nn.Module):  # nothing but a head
        output_embeddings: Callable[[Tensor], Tensor] = lm.get_output_embeddings()
        return output_embeddings
    decoder = decoder_of(lm)
    prefix = next(name for name, one in lm.named_children() if one is decoder)
    shell = copy.copy(lm)
    shell._modules = {name: one for name, one in lm._modules.items() if name != prefix}

    def head(hidden_BTD: Tensor) -> Tensor:
        own = copy.copy(shell)
        own.__dict__[prefix] = _Read(decoder, hidden_BTD)
        ids = torch.zeros(hidden_BTD.shape[:-1], dtype=torch.long, device=hidden_BTD.device)
        logits: Tensor = own.forward(input_ids=ids).logits
        return logits

    return head
