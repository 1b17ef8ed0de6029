"""Streams merged into one: each is closed with it, and nothing is logged when a reader leaves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ui.playground.pacing import merge_streams


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
        async with aclosing(merge_streams(forever(1), forever(2))) as items:
            await anext(items)
        gc.collect()  # asyncio logs an error that nobody has seen when its future is thrown away

    asyncio.run(leave_early())
    assert sorted(closed) == [1, 2]
    assert logged == []
