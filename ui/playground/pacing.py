"""Gathers what several streams yield into few updates: nothing that is new waits longer than one interval."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")
UPDATE_SECONDS = 0.05  # at most 20 updates a second


async def newest_of(
    *streams: AsyncGenerator[T, None], seconds: float = UPDATE_SECONDS
) -> AsyncGenerator[dict[int, T], None]:
    """The newest item of each stream that has a new one, by its index, at most once in `seconds`.

    Items must hold all that those before them held. The last item of each stream is always given. Closing this closes
    every stream.
    """
    newest: dict[int, T] = {}
    changed = asyncio.Event()

    async def follow(index: int, stream: AsyncGenerator[T, None]) -> None:
        async with aclosing(stream):
            async for item in stream:
                newest[index] = item
                changed.set()

    tasks = [asyncio.create_task(follow(index, stream)) for index, stream in enumerate(streams)]
    together = asyncio.gather(*tasks)
    together.add_done_callback(lambda _: changed.set())
    try:
        while newest or not together.done():
            await changed.wait()
            changed.clear()
            due = time.monotonic() + seconds
            gathered = dict(newest)
            newest.clear()
            if gathered:
                yield gathered
            if newest or not together.done():
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if newest or together.done():
                    changed.set()
        await together
    finally:
        for task in tasks:
            task.cancel()
        # `together` as well: asyncio logs a traceback for an error that nobody has asked it for.
        await asyncio.gather(together, *tasks, return_exceptions=True)
