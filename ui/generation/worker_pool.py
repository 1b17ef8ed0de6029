"""A thread pool for generations, so that a server stays responsive while its models compute.

A generation lives in one thread from its first token to its end: torch keeps modes such as inference_mode
per thread. The number of threads is the number of generations at once; a bounded number of others wait their turn.
A request of several answers has one slot for as long as it takes, and of the idle ones all but a quarter, so that the
next request never waits until one of them ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import Any, TypeVar

from engine.inference.cancellation import CancelledError, cancel_scope
from ui.errors import RateLimitExceededError, ServiceUnavailableError

T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    """The parts of a request that no slot has taken yet, and how many slots are at work on others."""

    left: deque[_QueuedWork] = field(default_factory=deque)
    num_running: int = 0


@dataclass(frozen=True, eq=False)
class _QueuedWork:
    """Work with a place in the queue, and the future of its result."""

    work: Callable[[], Any]
    request: _Request
    result: Future[Any] = field(default_factory=Future)

    def run(self) -> Callable[[], None]:
        """Does the work; returns a function that delivers the result, so that the slot can be freed first."""
        if not self.result.set_running_or_notify_cancel():
            return lambda: None
        try:
            result = self.work()
        except CancelledError as error:  # nobody looks at it: without its traceback, which holds caches of the stream
            return partial(self.result.set_exception, error.with_traceback(None))
        except BaseException as error:  # raised where the result is awaited
            return partial(self.result.set_exception, error)
        return partial(self.result.set_result, result)


class WorkerPool:
    """Runs at most `num_slots` generations at the same time; at most `max_waiting` others wait.

    Raises RateLimitExceededError when the queue is full, ServiceUnavailableError once it is closed, for those too that
    wait then.
    """

    def __init__(self, num_slots: int, max_waiting: int = 64) -> None:
        self._pool = ThreadPoolExecutor(num_slots, thread_name_prefix="generation")
        self._num_slots, self._max_waiting = num_slots, max_waiting
        self._num_shared = num_slots - max(1, num_slots // 4)  # busy ones below which a request may have several
        self._lock = Lock()
        self._busy = 0
        self._waiting: dict[_QueuedWork, None] = {}  # in the order of their coming
        self._divided: dict[_Request, None] = {}  # running requests with parts that no slot has taken yet
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
        """Raises ServiceUnavailableError when the server stops."""
        if self._closed:
            raise ServiceUnavailableError

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that needs a slot; a caller that is cancelled frees it at the next step."""
        given_up = Event()
        [turn] = self._enter(partial(_run, function, arguments, given_up))
        try:
            result: T = await asyncio.wrap_future(turn.result)
            return result
        finally:
            given_up.set()
            self._leave([turn])

    async def stream(self, *makes: Callable[[], Generator[T, None, None]]) -> AsyncGenerator[T, None]:
        """What a generator yields, as it comes; closing this ends it at its next step and frees the slot.

        Several generators begin in their order, and run side by side in slots for which nobody waits.
        """
        loop, items, given_up = asyncio.get_running_loop(), asyncio.Queue[Any](), Event()

        def put(item: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(items.put_nowait, item)

        turns = self._enter(*(partial(_pump, make, put, given_up) for make in makes))
        for turn in turns:
            turn.result.add_done_callback(put)
        num_left = len(turns)
        try:
            while num_left:
                item = await items.get()
                if not isinstance(item, Future):
                    yield item
                    continue
                num_left -= 1
                if not item.cancelled():
                    item.result()  # raises what ended the generator
        finally:
            given_up.set()
            self._leave(turns)

    def close(self) -> None:
        """Refuses new and waiting work; running work continues."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
        for turn in waiting:
            if turn.result.set_running_or_notify_cancel():
                turn.result.set_exception(ServiceUnavailableError())
        self._pool.shutdown(wait=False)

    def _enter(self, *works: Callable[[], Any]) -> list[_QueuedWork]:
        """A place for a request: one slot now or later, and for its other parts what is idle."""
        request = _Request()
        turns = [_QueuedWork(work, request) for work in works]
        first, *others = turns
        with self._lock:
            if self._closed:
                raise ServiceUnavailableError
            if self._busy >= self._num_slots and len(self._waiting) >= self._max_waiting:
                raise RateLimitExceededError(len(self._waiting))
            request.left.extend(others)
            self._waiting[first] = None
            while self._busy < self._num_slots and (turn := self._next(self._busy)) is not None:
                self._pool.submit(self._serve, turn)
                self._busy += 1
        return turns

    def _next(self, num_busy: int) -> _QueuedWork | None:
        """Takes who has waited longest, or else a part of a running request where few other slots are busy.

        The caller holds the lock.
        """
        turn = next(iter(self._waiting), None)
        if turn is not None:
            del self._waiting[turn]
            if turn.request.left:
                self._divided[turn.request] = None
            turn.request.num_running += 1
            return turn
        request = next(iter(self._divided), None) if num_busy < self._num_shared else None
        return None if request is None else self._part_of(request)

    def _part_of(self, request: _Request) -> _QueuedWork:
        turn = request.left.popleft()
        if not request.left:
            self._divided.pop(request, None)
        request.num_running += 1
        return turn

    def _leave(self, turns: Sequence[_QueuedWork]) -> None:
        for turn in turns:
            turn.result.cancel()
        with self._lock:
            for turn in turns:
                self._waiting.pop(turn, None)
                self._divided.pop(turn.request, None)
                turn.request.left.clear()

    def _serve(self, turn: _QueuedWork | None) -> None:
        """Runs a turn, then others until there are none."""
        while turn is not None:
            deliver, request = turn.run(), turn.request
            with self._lock:
                request.num_running -= 1
                # A request keeps one slot until all of its parts are taken.
                is_last = bool(request.left) and not request.num_running
                turn = self._part_of(request) if is_last else self._next(self._busy - 1)
                self._busy -= turn is None
            deliver()


def _pump(make: Callable[[], Generator[Any, None, None]], put: Callable[[Any], None], given_up: Event) -> None:
    with cancel_scope(given_up.is_set), closing(make()) as items:
        for item in items:
            if given_up.is_set():
                return
            put(item)


def _run(function: Callable[..., T], arguments: Sequence[Any], given_up: Event) -> T:
    with cancel_scope(given_up.is_set):
        return function(*arguments)
