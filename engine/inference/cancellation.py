"""Ends a computation between two of its steps, once nobody waits for its result any more.

Who runs it in a thread opens a `cancel_scope`; long computations call `check_cancelled` between their steps, as
anyio's `from_thread.check_cancelled` is used. Without a scope nothing is ever cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

CHECK_SECONDS = 0.1  # between two looks whether what waits is still wanted
_is_cancelled: ContextVar[Callable[[], bool]] = ContextVar("is_cancelled", default=lambda: False)


class CancelledError(Exception):
    """Nobody waits for the result."""


@contextmanager
def cancel_scope(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Makes `check_cancelled` raise in this thread, inside the block, as soon as `is_cancelled` gives True."""
    token = _is_cancelled.set(is_cancelled)
    try:
        yield
    finally:
        _is_cancelled.reset(token)


def current_scope() -> Callable[[], bool]:
    """Whether the scope around is cancelled, as a function that another thread may call."""
    return _is_cancelled.get()


def check_cancelled() -> None:
    """Raises CancelledError once the scope around is cancelled."""
    if current_scope()():
        raise CancelledError


@contextmanager
def cancellable_lock(lock: Lock) -> Iterator[None]:
    """Holds a lock inside the block; raises CancelledError if the surrounding scope is cancelled while it waits."""
    while not lock.acquire(timeout=CHECK_SECONDS):
        check_cancelled()
    try:
        yield
    finally:
        lock.release()
