"""What routes depend on: the app state, and work that ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from ui.generation.app_state import AppState

T = TypeVar("T")


class GoneError(Exception):
    """The client has disconnected."""


def _app_state(request: Request) -> AppState:
    state: AppState = request.app.state.workbench
    return state


State = Annotated[AppState, Depends(_app_state)]


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of some work; when the client leaves first, the work is cancelled and GoneError is raised."""
    task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_leaving(request))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise GoneError
        return task.result()
    finally:
        leaving.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})  # what it holds is free when we return


async def _leaving(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
