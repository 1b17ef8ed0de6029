"""For whoever runs the server: health, readiness, metrics, and an id and a count for every request."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.addresses import registry_id
from ui.api.answer_builders import TextPiece
from ui.api.deps import State
from ui.errors import AnswerTimeoutError, RateLimitExceededError
from ui.generation.app_state import AppState, Metrics
from workbench.answers.server import Health, LoadedBase, Ready
from workbench.registry.database import reading

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

router = APIRouter()
REQUEST_ID = "x-request-id"
_ID = re.compile(r"[\x21-\x7e]{1,128}")  # what a header can carry
_OTHER = "other"  # the route of pages and of unknown paths


@router.get("/healthz")
@router.get("/health")
def health(state: State) -> Health:
    """That the server runs, for which registry, where it computes (null: not yet) and what it holds in memory."""
    return Health(
        status="ok",
        version=version("expert-workbench"),
        registry=registry_id(state.settings),
        device=state.generations.device(),
        requested_device=state.settings.device,
        loaded=[LoadedBase(**vars(base)) for base in state.generations.use().bases],
        busy=state.slots.num_busy,
        waiting=state.slots.num_waiting,
    )


@router.get("/ready")
def ready(state: State) -> Ready:
    """That the server reads its registry and takes requests; 503 while it does not."""
    state.slots.require_open()
    with reading(state.settings):
        return Ready()


@router.get("/metrics", include_in_schema=False)
def metrics(state: State) -> Response:
    """Counts and times for Prometheus."""
    return Response(generate_latest(state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


class ServerNumbers(Collector):
    """The numbers of slots and of memory, read whenever metrics are asked for."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        slots, use, settings = self._state.slots, self._state.generations.use(), self._state.settings
        for name, sentence, value in (
            ("running_streams", "Generations that run.", slots.num_busy),
            ("waiting_streams", "Generations that wait for a slot.", slots.num_waiting),
            ("slots", "Generations that can run at the same time.", settings.max_streams),
            ("queue_slots", "Generations that may wait.", settings.max_waiting),
            ("model_bytes", "Bytes of loaded models.", use.num_bytes),
            ("clustering_bytes", "Bytes of clusterings in memory.", use.num_clustering_bytes),
            ("stream_bytes", "Bytes of keys and values of streams that share passes.", use.num_stream_bytes),
            ("reserved_stream_bytes", "Bytes reserved by running streams for keys and values.", use.num_reserved_bytes),
            ("cache_limit_bytes", "Limit of the bytes of models, clusterings and reservations.", settings.cache_bytes),
        ):
            yield GaugeMetricFamily(f"workbench_{name}", sentence, value)
        for name, sentence, value in (
            ("model_cache_hits", "Requests that found the experts of a base in memory.", use.num_hits),
            ("model_cache_misses", "Requests that waited until experts of a base were loaded.", use.num_misses),
            ("judged_drafts", "Drafted tokens that were compared.", use.num_judged_drafts),
            ("accepted_drafts", "Drafts that were the mixture's own tokens.", use.num_accepted_drafts),
        ):
            yield CounterMetricFamily(f"workbench_{name}", sentence, value)


async def within_answer_time(
    pieces: AsyncGenerator[TextPiece, None], state: AppState
) -> AsyncGenerator[TextPiece, None]:
    """The same pieces, counted; raises AnswerTimeoutError when they take longer than the settings allow."""
    seconds, counts, loop = state.settings.answer_seconds, state.metrics, asyncio.get_running_loop()
    start = loop.time()
    before: dict[int, float] = {}  # by choice: several come side by side
    is_finished = False
    async with aclosing(pieces):
        try:
            while True:
                try:
                    async with asyncio.timeout_at(start + seconds):
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    is_finished = True
                    return
                now = loop.time()
                if not before:
                    counts.first_token_seconds.observe(now - start)
                elif piece.index in before:
                    counts.between_tokens_seconds.observe(now - before[piece.index])
                before[piece.index] = now
                _count(counts, piece)
                yield piece
        except TimeoutError:
            raise AnswerTimeoutError(seconds) from None
        except RateLimitExceededError:
            is_finished = True  # it never began
            raise
        finally:
            counts.unfinished.inc(not is_finished)


def _count(counts: Metrics, piece: TextPiece) -> None:
    counts.generated_tokens.inc(piece.weights is not None)
    if piece.done is not None:
        counts.prompt_tokens.inc(piece.done.num_prompt_tokens)


class RequestRecord:
    """Gives every request an id, its own `X-Request-Id` if it has one, and counts it; around all else."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _ID.fullmatch(given) else f"req_{uuid.uuid4().hex}"
        status, start = 500, time.monotonic()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            route: APIRoute | None = scope.get("route")
            path = getattr(route, "path", _OTHER) if status not in (404, 405) or route else _OTHER
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.request_seconds.labels(path).observe(time.monotonic() - start)
