"""The memory that caches of running streams may take: a stream waits until all of its own fit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any

from engine.inference.cancellation import CHECK_SECONDS, check_cancelled

_BYTES = 4  # of a number, as if all were float32


class CacheBytes:
    """At most `capacity` bytes are reserved at a time, in the order of asking; one stream always fits.

    `shrink` frees what else counts toward the capacity, such as idle models, until so many bytes fit beside it; it
    gives the bytes that are still held.
    """

    def __init__(self, capacity: int, shrink: Callable[[int], int] = lambda _: 0) -> None:
        self._capacity, self._shrink = capacity, shrink
        self._changed = Condition()
        self._turns: deque[object] = deque()
        self._reserved = 0

    @property
    def num_reserved(self) -> int:
        """Bytes that running streams have reserved."""
        return self._reserved

    @contextmanager
    def reserved(self, num_bytes: int) -> Iterator[None]:
        """Waits for this many bytes and holds them: all at once, so that no two streams wait for each other.

        Raises CancelledError, and leaves its place, once nobody waits for the stream.
        """
        with self._changed:
            self._wait_for(num_bytes)
            self._reserved += num_bytes
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= num_bytes
                self._changed.notify_all()

    def retry(self) -> None:
        """Has streams that wait look again: what else counts toward the capacity may be idle now."""
        with self._changed:
            self._changed.notify_all()

    def _wait_for(self, num_bytes: int) -> None:
        """Returns when it is this stream's turn and its bytes fit. The caller holds the lock."""
        turn = object()
        self._turns.append(turn)
        try:
            while not self._changed.wait_for(
                lambda: self._turns[0] is turn and self._fits(num_bytes), timeout=CHECK_SECONDS
            ):
                check_cancelled()
        finally:
            self._turns.remove(turn)
            self._changed.notify_all()

    def _fits(self, num_bytes: int) -> bool:
        wanted = self._reserved + num_bytes
        return wanted + self._shrink(wanted) <= self._capacity or not self._reserved


def bytes_per_position(config: Any) -> int:
    """Bytes of the keys and values of one token in one expert's row, counted as float32.

    Those of a decoder with heads of one width; what recurrent layers or parts of MoDE hold beside is not counted.
    """
    text = config.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(2 * text.num_hidden_layers * heads * width * _BYTES)
