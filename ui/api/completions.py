"""POST /v1/completions: OpenAI's shape, with the weight of every expert, and of its parts, behind every token."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.errors import Problem
from engine.events import Done, Token
from ui.api.house import Gone, House, InHouse, unless_gone
from ui.api.problems import error_body
from ui.api.schemas import CompletionRequest

if TYPE_CHECKING:
    from workbench.services.generation import Plan

router = APIRouter()
log = logging.getLogger(__name__)

FINISH = {"stop": "stop", "phrase": "stop", "length": "length"}
CLIENT_LEFT = 499  # nginx's number: nobody is there to read it


class Scored(NamedTuple):
    """A token with its log-probability, and the most probable token in its place with its own."""

    text: str
    logprob: float
    best: tuple[str, float]


@dataclass
class Piece:
    """Some text of the answer with the tokens it is made of."""

    text: str
    weights: Mapping[str, float] | None = None
    gates: Mapping[str, Any] | None = None  # of experts of MoDE, by their names
    tokens: list[Scored] = field(default_factory=list)
    done: Done | None = None


@router.post("/v1/completions", response_model=None)
async def complete(asked: CompletionRequest, request: Request, house: InHouse) -> Response:
    """Text that goes on from a prompt, whole or as server-sent events."""
    plan = await run_in_threadpool(house.generations.plan, asked.wish(asked.model))
    pieces, answer = _pieces(house, plan, asked), Answer(plan, asked)
    try:
        if not asked.stream:
            return JSONResponse(await unless_gone(request, answer.whole(pieces)))
        # The first piece is awaited here: what fails before it is still an honest status.
        first = await unless_gone(request, anext(pieces))
    except Gone:
        await pieces.aclose()
        return Response(status_code=CLIENT_LEFT)
    return EventStream(_events(answer, first, pieces))


async def _pieces(house: House, plan: Plan, asked: CompletionRequest) -> AsyncGenerator[Piece, None]:
    if asked.echo:
        yield await _echo(house, plan, asked)
    if asked.max_tokens == 0:
        yield Piece("", done=Done("length", 0, 0))
        return
    sampling, phrases = asked.sampling(), asked.phrases()
    tokens = house.slots.stream(lambda: house.generations.stream(plan, asked.text(), sampling, phrases))
    async with aclosing(tokens):
        async for one in tokens:
            yield _piece(one)


def _piece(one: Token | Done) -> Piece:
    if isinstance(one, Done):
        return Piece(one.text, done=one)
    # The best candidate is told at temperature 0 only, where it is what was drawn.
    gates = {name: asdict(weights) for name, weights in one.gates.items()}
    return Piece(one.text, dict(one.weights), gates, [Scored(one.text, one.logprob, (one.text, one.logprob))])


async def _echo(house: House, plan: Plan, asked: CompletionRequest) -> Piece:
    """The prompt itself; with log-probabilities, each of its tokens and what the mixture gave it."""
    if asked.logprobs is None:
        return Piece(asked.text())
    read = await house.slots.call(house.generations.posterior, plan, asked.text())
    return Piece(asked.text(), tokens=list(map(Scored, read["tokens"], read["logprobs"], read["best"])))


class Answer:
    """One answer's identity, and its pieces in OpenAI's shape."""

    def __init__(self, plan: Plan, asked: CompletionRequest) -> None:
        self._asked = asked
        self._manifest = plan.manifest()
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": asked.model,
        }
        self._offset = 0

    async def whole(self, pieces: AsyncGenerator[Piece, None]) -> dict[str, Any]:
        """The answer in one object."""
        async with aclosing(pieces):
            found = [piece async for piece in pieces]
        text = "".join(piece.text for piece in found)
        choice = self._choice(text, [token for piece in found for token in piece.tokens], found[-1].done)
        weights = [piece.weights for piece in found if piece.weights is not None]
        gates = [piece.gates for piece in found if piece.gates is not None]
        return {
            **self._head,
            "choices": [{**choice, "expert_weights": weights, "gate_weights": gates}],
            "usage": usage(found[-1].done),
            "manifest": self._manifest,
        }

    def chunks(self, piece: Piece) -> list[dict[str, Any]]:
        """A piece of the stream; the last one carries the manifest, and the counts when they were asked for."""
        choice = self._choice(piece.text, piece.tokens, piece.done)
        told = {"expert_weights": piece.weights, "gate_weights": piece.gates}
        chunk = {**self._head, "choices": [{**choice, **told}]}
        if piece.done is None:
            return [chunk]
        options = self._asked.stream_options
        counts = (
            [{**self._head, "choices": [], "usage": usage(piece.done)}] if options and options.include_usage else []
        )
        return [{**chunk, "manifest": self._manifest}, *counts]

    def _choice(self, text: str, tokens: list[Scored], done: Done | None) -> dict[str, Any]:
        logprobs = None if self._asked.logprobs is None else self._logprobs(tokens)
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": done and FINISH[done.reason]}

    def _logprobs(self, tokens: list[Scored]) -> dict[str, Any]:
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token.text)
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [dict([token.best]) for token in tokens] if self._asked.logprobs else None,
            "text_offset": offsets,
        }


def usage(done: Done | None) -> dict[str, int]:
    """The counts of tokens, in OpenAI's words."""
    asked, said = (done.num_prompt_tokens, done.num_tokens) if done else (0, 0)
    return {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}


class EventStream(StreamingResponse):
    """Server-sent events; the generator is closed in any case: a client that leaves frees its slot at once."""

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await asyncio.shield(self._events.aclose())


async def _events(answer: Answer, first: Piece, rest: AsyncGenerator[Piece, None]) -> AsyncGenerator[str, None]:
    async with aclosing(rest):
        try:
            async for piece in _chained(first, rest):
                for chunk in answer.chunks(piece):
                    yield _event(chunk)
        except Problem as problem:
            yield _event(error_body(problem))
        except Exception as error:
            log.exception("A stream broke off.")
            yield _event(error_body(error))
        yield "data: [DONE]\n\n"


async def _chained(first: Piece, rest: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    yield first
    async for piece in rest:
        yield piece


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
