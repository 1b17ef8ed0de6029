"""Merges several streams into one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


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
