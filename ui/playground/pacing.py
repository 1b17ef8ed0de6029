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
    """The newest item of each stream that has a new one, by place, at most once in `seconds`.

    Items must hold all that those before them held. The last item of each stream is always given.
    """
    newest: dict[int, T] = {}
    changed = asyncio.Event()

    async def gather() -> None:
        async with aclosing(merge_streams(*streams)) as items:
            async for place, item in items:
                newest[place] = item
                changed.set()

    task = asyncio.create_task(gather())
    task.add_done_callback(lambda _: changed.set())
    try:
        while newest or not task.done():
            await changed.wait()
            changed.clear()
            due = time.monotonic() + seconds
            gathered = dict(newest)
            newest.clear()
            if gathered:
                yield gathered
            if newest or not task.done():
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if newest or task.done():
                    changed.set()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def merge_streams(*streams: AsyncGenerator[T, None]) -> AsyncGenerator[tuple[int, T], None]:
    """Merges streams: yields each item with its stream's place, as it comes. Closing this closes all of them."""
    items: asyncio.Queue[tuple[int, T] | None] = asyncio.Queue()

    async def follow(place: int, stream: AsyncGenerator[T, None]) -> None:
        async with aclosing(stream):
            async for one in stream:
                items.put_nowait((place, one))

    tasks = [asyncio.create_task(follow(place, stream)) for place, stream in enumerate(streams)]
    together = asyncio.gather(*tasks)
    together.add_done_callback(lambda _: items.put_nowait(None))
    try:
        while (item := await items.get()) is not None:
            yield item
        await together
    finally:
        for task in tasks:
            task.cancel()
        # `together` too: asyncio logs a traceback for an error that nobody has asked it for.
        await asyncio.gather(together, *tasks, return_exceptions=True)
