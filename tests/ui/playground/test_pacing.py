"""What several streams yield, in few updates: none is lost, and each stream is closed with them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from ui.playground.pacing import newest_of


def test_a_reader_who_leaves_closes_every_stream_and_no_traceback_is_logged() -> None:
    closed: list[int] = []
    logged: list[dict[str, Any]] = []

    async def forever(number: int) -> AsyncGenerator[int, None]:
        try:
            while True:
                yield number
                await asyncio.sleep(0.001)
        finally:
            closed.append(number)

    async def leave_early() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        async with aclosing(newest_of(forever(1), forever(2))) as updates:
            await anext(updates)
        gc.collect()  # asyncio logs an error that nobody has seen when its future is thrown away

    asyncio.run(leave_early())
    assert sorted(closed) == [1, 2]
    assert logged == []


def test_no_item_is_lost_between_two_updates() -> None:
    """Two streams that end at once are one or two updates, and the last holds everything."""

    async def numbers(start: int) -> Any:
        for number in range(500):
            await asyncio.sleep(0)
            yield tuple(range(start, start + number + 1))

    async def collect() -> list[dict[int, Any]]:
        return [update async for update in newest_of(numbers(0), numbers(1000))]

    updates = asyncio.run(collect())
    last = {place: one for update in updates for place, one in update.items()}
    assert last == {0: tuple(range(500)), 1: tuple(range(1000, 1500))}
    assert len(updates) < 100


def test_what_fails_in_one_stream_is_raised_after_what_came_before() -> None:
    async def failing() -> Any:
        yield "text"
        raise RuntimeError("a mistake")

    came: list[Any] = []

    async def collect() -> None:
        async for update in newest_of(failing(), seconds=0.0):
            came.append(update)

    with pytest.raises(RuntimeError, match="a mistake"):
        asyncio.run(collect())
    assert came == [{0: "text"}]
