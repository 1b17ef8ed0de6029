"""A few threads for generations, so that a server stays awake while its models think.

A generation lives in one thread from its first token to its end: torch keeps modes such as inference_mode
per thread. The number of threads is the number of generations at once; others wait their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _Failure:
    error: Exception


_END = object()


class Slots:
    """Runs at most `num_slots` generations at the same time."""

    def __init__(self, num_slots: int) -> None:
        self._pool = ThreadPoolExecutor(num_slots, thread_name_prefix="generation")
        self._lock = Lock()
        self._busy = 0

    @property
    def num_busy(self) -> int:
        """Generations that run now."""
        return self._busy

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that needs a slot."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._counted(function), *arguments)

    async def stream(self, make: Callable[[], Generator[T, None, None]]) -> AsyncGenerator[T, None]:
        """What a generator yields, as it comes; closing this closes it at its next item and frees the slot."""
        loop, items, given_up = asyncio.get_running_loop(), asyncio.Queue[Any](), Event()

        def put(item: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(items.put_nowait, item)

        turn = self._pool.submit(self._counted(_pump), make, put, given_up)
        try:
            while (item := await items.get()) is not _END:
                if isinstance(item, _Failure):
                    raise item.error
                yield item
        finally:
            given_up.set()
            turn.cancel()

    def close(self) -> None:
        """Lets nobody in any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _counted(self, function: Callable[..., T]) -> Callable[..., T]:
        def counted(*arguments: Any) -> T:
            self._count(1)
            try:
                return function(*arguments)
            finally:
                self._count(-1)

        return counted

    def _count(self, change: int) -> None:
        with self._lock:
            self._busy += change


def _pump(make: Callable[[], Generator[Any, None, None]], put: Callable[[Any], None], given_up: Event) -> None:
    try:
        with closing(make()) as found:
            for item in found:
                if given_up.is_set():
                    return
                put(item)
    except Exception as error:  # carried over to the one who waits for it
        put(_Failure(error))
    else:
        put(_END)
