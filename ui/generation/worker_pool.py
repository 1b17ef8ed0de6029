"""A thread pool for generations, so that a server stays responsive while its models compute.

A generation lives in one thread from its first token to its end: torch keeps modes such as inference_mode
per thread. The number of threads is the number of generations at once; a bounded number of others wait their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import Any, TypeVar

from ui.errors import RateLimitExceeded, ServiceUnavailable

T = TypeVar("T")


@dataclass(frozen=True)
class _Failure:
    error: BaseException


_END = object()


@dataclass(frozen=True, eq=False)
class _Turn:
    """Work with a place in the queue, and the future of its result."""

    work: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)

    def run(self) -> Callable[[], None]:
        """Does the work; returns a function that delivers the result, so that the slot can be freed first."""
        if not self.result.set_running_or_notify_cancel():
            return lambda: None
        try:
            result = self.work()
        except BaseException as error:  # raised where the result is awaited
            return partial(self.result.set_exception, error)
        return partial(self.result.set_result, result)


class WorkerPool:
    """Runs at most `num_slots` generations at the same time; at most `max_waiting` others wait.

    Raises RateLimitExceeded when the queue is full, ServiceUnavailable once it is closed, for those too that wait then.
    """

    def __init__(self, num_slots: int, max_waiting: int = 64) -> None:
        self._pool = ThreadPoolExecutor(num_slots, thread_name_prefix="generation")
        self._num_slots, self._max_waiting = num_slots, max_waiting
        self._lock = Lock()
        self._busy = 0
        self._waiting: dict[_Turn, None] = {}  # in the order of their coming
        self._closed = False

    @property
    def num_busy(self) -> int:
        """Generations that run now."""
        return self._busy

    @property
    def num_waiting(self) -> int:
        """Generations that wait for their turn."""
        return len(self._waiting)

    def require_open(self) -> None:
        """Raises ServiceUnavailable when the server stops."""
        if self._closed:
            raise ServiceUnavailable

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that needs a slot."""
        turn = self._enter(partial(function, *arguments))
        try:
            result: T = await asyncio.wrap_future(turn.result)
            return result
        finally:
            self._leave(turn)

    async def stream(self, make: Callable[[], Generator[T, None, None]]) -> AsyncGenerator[T, None]:
        """Yields a generator's items as they come; closing this closes it at its next item and frees the slot."""
        loop, items, given_up = asyncio.get_running_loop(), asyncio.Queue[Any](), Event()

        def put(item: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(items.put_nowait, item)

        turn = self._enter(partial(_pump, make, put, given_up))
        turn.result.add_done_callback(lambda result: put(_end_of(result)))
        try:
            while (item := await items.get()) is not _END:
                if isinstance(item, _Failure):
                    raise item.error
                yield item
        finally:
            given_up.set()
            self._leave(turn)

    def close(self) -> None:
        """Refuses new and waiting work; running work continues."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
        for turn in waiting:
            if turn.result.set_running_or_notify_cancel():
                turn.result.set_exception(ServiceUnavailable())
        self._pool.shutdown(wait=False)

    def _enter(self, work: Callable[[], Any]) -> _Turn:
        turn = _Turn(work)
        with self._lock:
            if self._closed:
                raise ServiceUnavailable
            if self._busy < self._num_slots:
                self._pool.submit(self._serve, turn)
                self._busy += 1
            elif len(self._waiting) < self._max_waiting:
                self._waiting[turn] = None
            else:
                raise RateLimitExceeded(len(self._waiting))
        return turn

    def _leave(self, turn: _Turn) -> None:
        turn.result.cancel()
        with self._lock:
            self._waiting.pop(turn, None)

    def _serve(self, turn: _Turn | None) -> None:
        """Runs a turn, then the waiting ones until there are none."""
        while turn is not None:
            deliver = turn.run()
            with self._lock:
                turn = next(iter(self._waiting), None)
                if turn is None:
                    self._busy -= 1
                else:
                    del self._waiting[turn]
            deliver()


def _end_of(result: Future[Any]) -> Any:
    error = None if result.cancelled() else result.exception()
    return _END if error is None else _Failure(error)


def _pump(make: Callable[[], Generator[Any, None, None]], put: Callable[[Any], None], given_up: Event) -> None:
    with closing(make()) as items:
        for item in items:
            if given_up.is_set():
                return
            put(item)
