"""Tries of tokens, counted by client: who has sent many wrong ones tries one at a time, and each try waits.

Nobody's wrong tokens are another's. In a header the tokens of a client that has sent a right one lately are tried at
once, so that no program is slowed by others at its address; whoever guesses there is not slowed either.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.concurrency import run_in_threadpool

from workbench.access.actor import Actor

MAX_FAILURES, FAILURE_SECONDS, MAX_CLIENTS = 5, 60.0, 10_000
SLOW_SECONDS = 1.0  # before each try of a client that has sent many wrong tokens
MAX_WAITING = 5  # tries of such a client, the one whose turn it is among them; others are refused at once
KNOWN_SECONDS = 3600.0  # after a right token in a header


class TooManyTriesError(Exception):
    """More tries of a client wait than may; `seconds` is when the last of them is done."""

    seconds = round(MAX_WAITING * SLOW_SECONDS)


class Failures:
    """Counts wrong tokens by client."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: dict[str, deque[float]] = {}  # by client, the one with the latest failure last

    def add(self, client: str) -> None:
        """Counts a wrong token."""
        times = self._times.pop(client, None) or deque(maxlen=MAX_FAILURES)
        times.append(self._clock())
        self._times[client] = times
        if len(self._times) > MAX_CLIENTS:
            del self._times[next(iter(self._times))]

    def are_too_many(self, client: str) -> bool:
        """Whether a client has reached the limit."""
        times = self._times.get(client)
        return times is not None and len(times) == MAX_FAILURES and self._clock() - times[0] < FAILURE_SECONDS


class _Line:
    """The tries of one client: the lock of the one whose turn it is, and how many there are."""

    def __init__(self) -> None:
        self.turn, self.num = asyncio.Lock(), 0


class Attempts:
    """Tries tokens by `find`, those of a client with many wrong ones slowly and one after another."""

    def __init__(
        self,
        find: Callable[[bytes], Actor | None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._pause, self._clock = find, pause, clock
        self._failures = Failures(clock)
        self._lines: dict[str, _Line] = {}
        self._known: dict[str, float] = {}  # when a client last sent a right token in a header, the latest last

    async def in_form(self, client: str, token: bytes) -> tuple[Actor | None, bool]:
        """Whose token was typed, and whether its try was slow. Raises TooManyTriesError."""
        async with self._turn(client) as is_slow:
            return await self._try(client, token), is_slow

    async def in_header(self, client: str, token: bytes) -> Actor | None:
        """Whose token a program sent. Raises TooManyTriesError."""
        if self._is_known(client):
            actor = await self._try(client, token)
        else:
            async with self._turn(client, self._is_known):
                actor = await self._try(client, token)
        if actor is not None:
            self._known.pop(client, None)
            self._known[client] = self._clock()
            if len(self._known) > MAX_CLIENTS:
                del self._known[next(iter(self._known))]
        return actor

    async def _try(self, client: str, token: bytes) -> Actor | None:
        actor = await run_in_threadpool(self._find, token)
        if actor is None:
            self._failures.add(client)
        return actor

    def _is_known(self, client: str) -> bool:
        return client in self._known and self._clock() - self._known[client] < KNOWN_SECONDS

    @asynccontextmanager
    async def _turn(self, client: str, is_free: Callable[[str], bool] = lambda _: False) -> AsyncIterator[bool]:
        """The turn of one try; whether it had to wait, the right token too: its answer must not come before others."""
        line = self._lines.setdefault(client, _Line())
        if self._failures.are_too_many(client) and line.num >= MAX_WAITING:
            raise TooManyTriesError
        line.num += 1
        try:
            async with line.turn:
                is_slow = self._failures.are_too_many(client) and not is_free(client)
                if is_slow and line.num > MAX_WAITING:  # it came before the failures
                    raise TooManyTriesError
                if is_slow:
                    await self._pause(SLOW_SECONDS)
                yield is_slow
        finally:
            line.num -= 1
            if not line.num:
                del self._lines[client]
