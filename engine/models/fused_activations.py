"""The GELU of GPT-2 in one kernel, as long as a model trains.

transformers writes “gelu_new” as eight operations in a row, of which autocast makes some in float32. PyTorch has the
same function as one, which differs in the last bits alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def fused_activations(model: Any) -> Iterator[None]:
    """Within it, each “gelu_new” of the model is computed by PyTorch's kernel; after it, as transformers does."""
    from transformers.activations import GELUTanh, NewGELUActivation

    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is NewGELUActivation
    ]
    for parent, name, _ in places:
        setattr(parent, name, GELUTanh())
    try:
        yield
    finally:
        for parent, name, child in places:
            setattr(parent, name, child)
