"""What routes depend on: the app state, its registry, and work that ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request

from ui.generation.app_state import AppState
from workbench.access.actor import Role
from workbench.registry.database import reading, transaction

P = ParamSpec("P")
T = TypeVar("T")


class GoneError(Exception):
    """The client has disconnected."""


def _app_state(request: Request) -> AppState:
    state: AppState = request.app.state.workbench
    return state


State = Annotated[AppState, Depends(_app_state)]


def read(state: AppState, service: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
    """The answer of a service whose first argument is a session that reads the registry."""
    with reading(state.settings) as session:
        return service(session, *arguments, **options)


def write(state: AppState, service: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs) -> T:
    """The answer of a service that changes the registry, in one transaction."""
    with transaction(state.settings) as session:
        return service(session, *arguments, **options)


def write_by_viewer(
    state: AppState, service: Callable[Concatenate[Any, P], T], *arguments: P.args, **options: P.kwargs
) -> T:
    """The same for a change that every user may make."""
    with transaction(state.settings, Role.VIEWER) as session:
        return service(session, *arguments, **options)


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
