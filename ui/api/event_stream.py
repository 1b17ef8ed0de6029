"""Server-sent events: chunks of an answer as they come, and comments while it waits for its first token."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.errors import Problem
from ui.api.answer_builders import AnswerBuilder, Chunk, Result, TextPiece
from ui.api.error_responses import error_body

log = logging.getLogger(__name__)
WAITING = ": waiting\n\n"  # a comment, which clients skip


class EventStream(StreamingResponse):
    """Server-sent events; the generator is closed in any case: a client that leaves frees its slot within one step.

    `ended` is called then, also where the generator never started.
    """

    def __init__(self, events: AsyncGenerator[str, None], ended: Callable[[], object] = lambda: None) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._events, self._ended = events, ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()
            await asyncio.shield(self._events.aclose())


async def events(
    answer: AnswerBuilder[Result, Chunk],
    first: asyncio.Task[TextPiece],
    rest: AsyncGenerator[TextPiece, None],
    quiet_seconds: float,
) -> AsyncGenerator[str, None]:
    """The events of an answer; comments as long as its first piece does not come, then `[DONE]` at the end."""
    try:
        while not first.done():
            yield WAITING
            await asyncio.wait({first}, timeout=quiet_seconds)
        async for piece in _chain(first, rest):
            for chunk in answer.chunks(piece):
                yield json_event(chunk.model_dump(mode="json", exclude_unset=True))
    except Problem as problem:
        yield json_event(error_body(problem))
    except Exception as error:
        log.exception("A stream broke off.")
        yield json_event(error_body(error))
    finally:
        await let_go(first, rest)
    yield event("[DONE]")


async def let_go(first: asyncio.Task[TextPiece], rest: AsyncGenerator[TextPiece, None]) -> None:
    """Ends a stream, whether its first piece has come or not."""
    first.cancel()
    try:
        await asyncio.gather(first, return_exceptions=True)
    finally:
        await rest.aclose()


async def _chain(first: asyncio.Task[TextPiece], rest: AsyncIterator[TextPiece]) -> AsyncIterator[TextPiece]:
    yield first.result()
    async for piece in rest:
        yield piece


def event(data: str) -> str:
    """A server-sent event."""
    return f"data: {data}\n\n"


def json_event(value: Mapping[str, object]) -> str:
    """An event that carries an object, in ASCII: clients that split lines at U+2028, U+2029 or U+0085 read it whole."""
    return event(json.dumps(value, separators=(",", ":")))
