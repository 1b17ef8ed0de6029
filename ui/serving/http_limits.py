"""HTTP of both servers, with limits on what a client may send, and on how long it may take.

They hold before a request is parsed or its token is known: a header ends after so many bytes and seconds, a body keeps
coming, an answer is read. A connection that breaks one is ended, and nothing else waits for it. uvicorn reads with
httptools where that is installed, and with h11 elsewhere; the limits are those of either.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import uvicorn.config
from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol
else:
    _Protocol = object

HEADER_BYTES = 64 << 10  # of a request without its body; also of what a body has around its chunks
HEADER_SECONDS = 20.0
BODY_SECONDS, BODY_BYTES = 30.0, 32 << 10  # a body that brings less in so many seconds is given up
STALL_SECONDS = 30.0  # for which a client may leave an answer unread
SEND_BYTES = 128 << 10  # that the system holds of an answer: Linux holds megabytes otherwise, an hour of tokens
REST_SECONDS = 5.0  # for which the rest of a body is thrown away, so that the client can read why it was refused
MAX_IDLE = 256  # connections without a request or with a refused one; the one that waited longest makes room

Phase = Literal["header", "body", "answer", "rest"]


def use_limits() -> None:
    """Makes these limits those of every server of this process that uvicorn runs with its default protocol."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:{LimitedHTTP.__name__}"


class HTTPLimits(_Protocol):
    """What each of uvicorn's protocols gets; `cycle` is the request of a connection that came last."""

    _idle: ClassVar[dict[Any, None]] = {}  # connections, the one that has waited longest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if (line := transport.get_extra_info("socket")) is not None:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        self._num_pending = 0  # bytes since the last whole piece of a request
        self._num_body = 0  # bytes of the body since the last look
        self._is_refused = False
        self._running: Any = None  # of pipelined requests, the one that is answered: httptools reads on meanwhile
        self._at: tuple[Any, Phase] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self.resume_writing()
        self._disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), HEADER_BYTES):
            if self._is_refused or self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            self._read(data[start : start + HEADER_BYTES])

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)  # type: ignore[misc]

    def on_response_complete(self) -> None:
        before = self._progress()
        super().on_response_complete()
        if self._progress() != before:  # the next request was there already
            self._num_pending = 0
        self._follow()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def send_400_response(self, msg: str) -> None:
        if getattr(sys.exception(), "error_status_hint", 400) == 431:  # h11 counts as well
            self._refuse_header()
        else:
            self.refuse(400, msg)

    def refuse(self, status: int, message: str) -> None:
        """Answers, and ends the connection and what was requested by it."""
        if self._is_refused:
            return
        self._is_refused = True
        ended = self._disconnect()
        if len(ended) > 1 or any(cycle.response_started for cycle in ended):
            self.transport.abort()  # what is written now would be read as a part of another answer
            return
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": "bad_request"}
        body = json.dumps({"error": error}).encode()
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._set_timer(REST_SECONDS, self.transport.abort)  # closed at once, the client might not read the answer
        self._end_oldest()

    def _disconnect(self) -> list[Any]:
        """Ends the requests that are not answered yet, pipelined ones too; gives them."""
        cycles = [self._running, *(cycle for cycle, _ in getattr(self, "pipeline", ())), self.cycle]
        unanswered = {id(cycle): cycle for cycle in cycles if cycle is not None and not cycle.response_complete}
        for cycle in unanswered.values():
            cycle.disconnected = True
            cycle.message_event.set()
        return list(unanswered.values())

    def _read(self, piece: bytes) -> None:
        cycle, num_bytes, _ = before = self._progress()
        super().data_received(piece)
        if self.transport.get_protocol() is not self:  # a web socket, which was let in
            self._let_go()
            return
        after = self._progress()
        self._num_body += after[1] - (num_bytes if after[0] is cycle else 0)
        self._num_pending = self._num_pending + len(piece) if after == before else 0
        if self._num_pending > HEADER_BYTES and self._phase() != "rest":
            self._refuse_header()
        self._follow()

    def _refuse_header(self) -> None:
        self.refuse(431, f"The header of a request must be at most {HEADER_BYTES:,} bytes, but is larger.")

    def _progress(self) -> tuple[Any, int, bool]:
        """The request that is read, and how much of it was."""
        return (None, 0, True) if self.cycle is None else (self.cycle, len(self.cycle.body), self.cycle.more_body)

    def _phase(self) -> Phase:
        """What is awaited: a header, a body, the answer, or the end of a body that nobody reads any more."""
        cycle = self.cycle
        if cycle is None:
            return "header"
        if cycle.response_complete:
            return "rest" if cycle.more_body else "header"
        return "body" if cycle.more_body else "answer"

    def _follow(self) -> None:
        """Sets the time limit of what is awaited now."""
        at = (self.cycle, self._phase())
        if self._is_refused or at == self._at or self.transport.is_closing():
            return
        self._at = at
        self._idle.pop(self, None)
        self._num_body = 0
        match at[1]:
            case "header":
                self._set_timer(HEADER_SECONDS, self._end_header)
            case "rest":
                self._set_timer(REST_SECONDS, self.transport.abort)
            case "body":
                self._set_timer(BODY_SECONDS, self._look_at_body)
            case "answer":
                self._set_timer(None)
        if at[1] in ("header", "rest"):
            self._end_oldest()

    def _end_oldest(self) -> None:
        self._idle.pop(self, None)
        self._idle[self] = None
        if len(self._idle) > MAX_IDLE:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.transport.abort()

    def _end_header(self) -> None:
        if self._num_pending:
            self.refuse(408, f"The header of a request must be complete within {HEADER_SECONDS:g} seconds.")
        else:
            self.transport.close()

    def _look_at_body(self) -> None:
        if not self.flow.read_paused and self._num_body < BODY_BYTES:  # paused: it is we who do not read
            self.refuse(408, f"The body of a request must bring {BODY_BYTES:,} bytes in {BODY_SECONDS:g} seconds.")
            return
        self._num_body = 0
        self._set_timer(BODY_SECONDS, self._look_at_body)

    def _set_timer(self, seconds: float | None, act: Any = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, act)

    def _let_go(self) -> None:
        self._idle.pop(self, None)
        self._set_timer(None)


class LimitedHTTP(HTTPLimits, AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """The protocol that uvicorn would have chosen, with limits."""
