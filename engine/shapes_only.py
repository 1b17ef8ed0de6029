"""Building models as shapes alone: within it no weight is read, and none takes memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_is_on = ContextVar("shapes_only", default=False)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Models that are built and loaded within are of torch's device `meta`; the bytes of their files are not checked.

    They are only good for counting: what a model would take, before it is loaded.
    """
    import torch

    token = _is_on.set(True)
    try:
        with torch.device("meta"):
            yield
    finally:
        _is_on.reset(token)


def is_shapes_only() -> bool:
    """Whether models are built as shapes alone now."""
    return _is_on.get()
