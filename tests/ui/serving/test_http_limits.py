"""What a client sends is bounded before it is parsed, and who does not read an answer loses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tests.ui.conftest import in_loop
from ui.serving import http_limits
from ui.serving.http_limits import HEADER_BYTES, MAX_IDLE, HTTPLimits

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class LimitedH11(HTTPLimits, H11Protocol):  # type: ignore[misc]
    pass


class LimitedTools(HTTPLimits, HttpToolsProtocol):  # type: ignore[misc]
    pass


both = pytest.mark.parametrize("kind", [LimitedH11, LimitedTools])


class Wire(asyncio.Transport):
    """The end of a connection: what was written, and whether it is over."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written, self.is_over, self.protocol = b"", False, None

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.is_over = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_over

    def get_protocol(self) -> Any:
        return self.protocol

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Clock:
    """A loop whose time advances on request."""

    def __init__(self) -> None:
        self.now, self._timers = 0.0, list[tuple[float, asyncio.TimerHandle]]()
        self.create_task = asyncio.get_running_loop().create_task

    def call_later(self, seconds: float, act: Callable[..., object]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.now + seconds, act, (), asyncio.get_running_loop())
        self._timers.append((self.now + seconds, timer))
        return timer

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for at, timer in self._timers if at <= self.now and not timer.cancelled()]
        self._timers = [(at, timer) for at, timer in self._timers if at > self.now]
        for timer in due:
            timer._run()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(f"{len(body)} bytes")(scope, receive, send)


class Connection:
    def __init__(self, kind: type[Any], app: Any = echo, clock: Clock | None = None) -> None:
        config = uvicorn.Config(app, http=kind, log_level="critical")
        config.load()
        self.clock, self.wire = clock or Clock(), Wire()
        self.protocol = kind(config, ServerState(), {}, self.clock)
        self.wire.protocol = self.protocol
        self.protocol.connection_made(self.wire)

    async def send(self, *pieces: bytes) -> bytes:
        for piece in pieces:
            self.protocol.data_received(piece)
        for _ in range(20):
            await asyncio.sleep(0)
        return self.wire.written

    def lose(self) -> None:
        self.protocol.connection_lost(None)


@both
@pytest.mark.parametrize(
    "endless",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nx-a: " + b"a" * 8192,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2048,
        b"GET /" + b"a" * 8192,
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx-a: " + b"a" * 8192,
    ],
    ids=["value", "fields", "target", "trailer"],
)
@in_loop
async def test_a_header_without_end_is_answered_431_and_no_longer_read(kind: type[Any], endless: bytes) -> None:
    connection = Connection(kind)
    more = b"a: b\r\n" * 1365 if b"a: b" in endless else b"a" * 8192
    answer = await connection.send(endless, *[more] * 10)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert f"at most {HEADER_BYTES:,} bytes".encode() in answer
    size = len(answer)
    assert len(await connection.send(*[b"a" * (1 << 20)] * 8)) == size
    connection.clock.pass_by(http_limits.REST_SECONDS)
    assert connection.wire.is_over


@both
@in_loop
async def test_requests_within_the_limits_are_answered_one_after_another(kind: type[Any]) -> None:
    connection, long_field = Connection(kind), b"x-a: " + b"a" * (HEADER_BYTES - 200) + b"\r\n"
    for _ in range(3):
        connection.wire.written = b""
        answer = await connection.send(POST + long_field + b"Content-Length: 200000\r\n\r\n", b"b" * 200_000)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"200000 bytes")
    assert not connection.wire.is_over


@both
@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (b"GET / HTTP/1.1\r\nHo", b"408"), (POST + b"Content-Length: 9\r\n\r\nx", b"408")],
    ids=["nothing", "header", "body"],
)
@in_loop
async def test_a_request_that_does_not_come_to_an_end_is_given_up(kind: type[Any], sent: bytes, answer: bytes) -> None:
    connection = Connection(kind)
    await connection.send(*[sent] * bool(sent))
    connection.clock.pass_by(http_limits.BODY_SECONDS)
    assert connection.wire.written.startswith(b"HTTP/1.1 " + answer if answer else b"")
    connection.clock.pass_by(http_limits.REST_SECONDS)
    assert connection.wire.is_over


@both
@in_loop
async def test_a_long_body_that_keeps_coming_is_waited_for(kind: type[Any]) -> None:
    connection = Connection(kind)
    await connection.send(POST + b"Content-Length: 400000\r\n\r\n")
    for _ in range(10):
        await connection.send(b"b" * 40_000)
        connection.clock.pass_by(http_limits.BODY_SECONDS)
    assert connection.wire.written.endswith(b"400000 bytes")


@both
@in_loop
async def test_a_body_that_nobody_reads_does_not_hold_its_connection(kind: type[Any]) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await Response("no", 401)(scope, receive, send)

    connection = Connection(kind, refuse)
    answer = await connection.send(POST + b"Content-Length: 1000000\r\n\r\n", b"b" * 500_000)
    assert answer.startswith(b"HTTP/1.1 401 ")
    connection.clock.pass_by(http_limits.REST_SECONDS)
    assert connection.wire.is_over


@both
@in_loop
async def test_the_connection_that_has_waited_longest_ends_when_there_are_too_many(kind: type[Any]) -> None:
    clock = Clock()
    waiting = [Connection(kind, clock=clock) for _ in range(MAX_IDLE + 2)]
    assert [one.wire.is_over for one in waiting] == [True, True, *[False] * MAX_IDLE]
    for one in waiting:
        one.lose()
    assert not HTTPLimits._idle


@both
@in_loop
async def test_connections_that_were_refused_count_among_those_that_wait(kind: type[Any]) -> None:
    clock = Clock()
    refused = [Connection(kind, clock=clock) for _ in range(MAX_IDLE)]
    for one in refused:
        await one.send(POST + b"Transfer-Encoding: chunked\r\n\r\n", b"no size\r\n")
    waiting = [Connection(kind, clock=clock) for _ in range(2)]
    assert [one.wire.is_over for one in refused[:3]] == [True, True, False]
    assert not [one for one in waiting if one.wire.is_over]
    for one in (*refused, *waiting):
        one.lose()


@both
@in_loop
async def test_the_end_of_an_answer_gives_the_next_header_no_more_bytes(kind: type[Any]) -> None:
    is_due = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await is_due.wait()
        await echo(scope, receive, send)

    connection, half = Connection(kind, slow), b"a" * (HEADER_BYTES - 100)
    await connection.send(GET, b"GET / HTTP/1.1\r\nx-a: " + half)
    is_due.set()
    answer = await connection.send()
    assert answer.startswith(b"HTTP/1.1 200 ")
    answers = await connection.send(half)
    assert b"HTTP/1.1 431 " in answers[len(b"HTTP/1.1 ") :]


class Pipelined:
    """An application whose first request is answered when its client is gone."""

    def __init__(self) -> None:
        self.started, self.disconnected, self.num_started = asyncio.Event(), asyncio.Event(), 0

    async def __call__(self, _: Any, receive: Any, __: Any) -> None:
        self.num_started += 1
        while (await receive())["type"] != "http.disconnect":
            self.started.set()
        self.disconnected.set()


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server with httptools, over real sockets: h11 reads nothing on before the first is answered."""
    config = uvicorn.Config(app, http=LimitedTools, log_level="critical")
    config.load()
    state = ServerState()
    make = partial(LimitedTools, config, state, {}, asyncio.get_running_loop())
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()
        await asyncio.gather(*state.tasks)


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 60)
    return b""


@in_loop
async def test_a_bad_request_behind_pipelined_ones_ends_them_all_and_answers_none() -> None:
    app = Pipelined()
    async with served(app) as (reader, writer):
        writer.write(GET + GET + b"no request\r\n\r\n")
        assert await rest_of(reader) == b""
        await asyncio.wait_for(app.disconnected.wait(), 60)
        assert app.num_started == 1


@in_loop
async def test_a_client_that_leaves_ends_the_first_of_its_pipelined_requests() -> None:
    app = Pipelined()
    async with served(app) as (_, writer):
        writer.write(GET + GET)
        await asyncio.wait_for(app.started.wait(), 60)
        writer.transport.abort()
        await asyncio.wait_for(app.disconnected.wait(), 60)


@pytest.mark.parametrize("num_before", [1, 2])
def test_a_header_without_end_during_an_answer_ends_the_connection(num_before: int) -> None:
    async def begin(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        ended.append(scope["path"])

    async def test() -> None:
        connection = Connection(LimitedTools, begin)
        answer = await connection.send(GET * num_before)
        assert await connection.send(b"GET / HTTP/1.1\r\nx-a: ", *[b"a" * 8192] * 9) == answer
        assert connection.wire.is_over
        assert ended == ["/"]

    ended: list[str] = []
    asyncio.run(test())


@both
@in_loop
async def test_an_answer_that_is_not_read_ends_what_makes_it(kind: type[Any]) -> None:
    ended = asyncio.Event()

    async def endless() -> Any:
        try:
            while True:
                yield "word "
                await asyncio.sleep(0)
        finally:
            ended.set()

    connection = Connection(kind, StreamingResponse(endless()))
    await connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    connection.protocol.pause_writing()
    connection.clock.pass_by(http_limits.STALL_SECONDS / 2)
    connection.protocol.resume_writing()  # it was read after all
    connection.clock.pass_by(http_limits.STALL_SECONDS)
    assert not connection.wire.is_over
    connection.protocol.pause_writing()
    connection.clock.pass_by(http_limits.STALL_SECONDS)
    assert connection.wire.is_over
    connection.lose()  # as the transport does then
    await asyncio.wait_for(ended.wait(), 60)
