"""POST /v1/completions: OpenAI's shape, with the weight of every expert, and of its parts, behind every token."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.errors import Problem
from engine.events import Done, Echo, GateWeights, Token
from ui.api.deps import Gone, State, unless_gone
from ui.api.error_responses import error_body
from ui.api.schemas import CompletionRequest
from ui.generation.model_host import ModelHost
from workbench.answers.server import (
    ChunkChoice,
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionHead,
    Logprobs,
    Usage,
)

if TYPE_CHECKING:
    from workbench.generation import GenerationPlan

router = APIRouter()
log = logging.getLogger(__name__)

FINISH = {"stop": "stop", "phrase": "stop", "length": "length"}
CLIENT_LEFT = 499  # nginx's code for a client that has disconnected


class Scored(NamedTuple):
    """A token with its log-probability, and the most probable token in its place with its own; None of a first one."""

    text: str
    logprob: float | None
    best: tuple[str, float] | None


@dataclass
class Piece:
    """Some text of one choice of the answer, with the tokens it is made of."""

    index: int
    text: str
    weights: Mapping[str, float] | None = None
    gates: Mapping[str, GateWeights] | None = None  # of experts of MoDE, by their names
    tokens: Sequence[Scored] = ()
    done: Done | None = None


@router.post("/v1/completions", response_model=Completion)
async def complete(body: CompletionRequest, request: Request, state: State) -> Completion | Response:
    """Text that goes on from each prompt, whole or as server-sent events."""
    plan = await run_in_threadpool(state.generations.plan, body.to_request(body.model))
    await run_in_threadpool(state.generations.require_readable, plan, *body.prompt)
    # One slot for all prompts, one after the other: a request has one place in the queue.
    pieces, answer = state.slots.stream(lambda: _pieces(state.generations, plan, body)), CompletionBuilder(plan, body)
    try:
        if not body.stream:
            return await unless_gone(request, answer.completion(pieces))
        # The first piece is awaited here: what fails before it is still an honest status.
        first = await unless_gone(request, anext(pieces))
    except Gone:
        await pieces.aclose()
        return Response(status_code=CLIENT_LEFT)
    return EventStream(_events(answer, first, pieces))


def _pieces(generations: ModelHost, plan: GenerationPlan, body: CompletionRequest) -> Generator[Piece, None, None]:
    for index, prompt in enumerate(body.prompt):
        if body.echo:
            echo = generations.echo(plan, prompt)
            yield Piece(index, prompt if isinstance(prompt, str) else "".join(echo.tokens), tokens=_scored(echo))
            if body.max_tokens == 0:
                yield Piece(index, "", done=Done("length", echo.num_tokens, 0))
                continue
        with closing(generations.stream(plan, prompt, body.sampling(), body.phrases())) as tokens:
            for one in tokens:
                yield _piece(index, one)


def _piece(index: int, one: Token | Done) -> Piece:
    if isinstance(one, Done):
        return Piece(index, one.text, done=one)
    # The best candidate is known at temperature 0 only, where it is the sampled token.
    return Piece(index, one.text, one.weights, one.gates, [Scored(one.text, one.logprob, (one.text, one.logprob))])


def _scored(echo: Echo) -> list[Scored]:
    return list(map(Scored, echo.tokens, echo.logprobs, echo.best))


class CompletionBuilder:
    """Makes a completion, or its chunks, of the pieces of an answer."""

    def __init__(self, plan: GenerationPlan, body: CompletionRequest) -> None:
        self._body = body
        self._manifest = plan.manifest()
        self._head = CompletionHead(id=f"cmpl-{uuid.uuid4().hex}", created=int(time.time()), model=body.model)
        self._offsets = [0] * len(body.prompt)
        self._done: list[Done] = []

    async def completion(self, pieces: AsyncGenerator[Piece, None]) -> Completion:
        """The answer in one object, with a choice for each prompt."""
        by_prompt: list[list[Piece]] = [[] for _ in self._body.prompt]
        async with aclosing(pieces):
            async for piece in pieces:
                by_prompt[piece.index].append(piece)
        choices = [self._completion_choice(index, own) for index, own in enumerate(by_prompt)]
        return Completion(**dict(self._head), choices=choices, usage=usage(self._done), manifest=self._manifest)

    def chunks(self, piece: Piece) -> list[CompletionChunk]:
        """A piece of the stream; the last one carries the manifest, and the counts if they were requested.

        Fields that a chunk does not carry are unset.
        """
        head, choice = dict(self._head), self._chunk_choice(piece)
        if len(self._done) < len(self._body.prompt):
            return [CompletionChunk(**head, choices=[choice])]
        options = self._body.stream_options
        last = CompletionChunk(**head, choices=[choice], manifest=self._manifest)
        if not (options and options.include_usage):
            return [last]
        return [last, CompletionChunk(**head, choices=[], usage=usage(self._done))]

    def _chunk_choice(self, piece: Piece) -> ChunkChoice:
        return ChunkChoice(
            index=piece.index,
            text=piece.text,
            logprobs=self._logprobs(piece),
            finish_reason=self._finish_reason(piece.done),
            expert_weights=None if piece.weights is None else dict(piece.weights),
            gate_weights=None if piece.gates is None else dict(piece.gates),
        )

    def _completion_choice(self, index: int, pieces: Sequence[Piece]) -> CompletionChoice:
        joined = Piece(
            index,
            "".join(piece.text for piece in pieces),
            tokens=[token for piece in pieces for token in piece.tokens],
            done=pieces[-1].done,
        )
        return CompletionChoice(
            index=index,
            text=joined.text,
            logprobs=self._logprobs(joined),
            finish_reason=self._finish_reason(joined.done),
            expert_weights=[dict(piece.weights) for piece in pieces if piece.weights is not None],
            gate_weights=[dict(piece.gates) for piece in pieces if piece.gates is not None],
        )

    def _finish_reason(self, done: Done | None) -> str | None:
        if done is None:
            return None
        self._done.append(done)
        return FINISH[done.reason]

    def _logprobs(self, piece: Piece) -> Logprobs | None:
        if self._body.logprobs is None:
            return None
        offsets = []
        for token in piece.tokens:
            offsets.append(self._offsets[piece.index])
            self._offsets[piece.index] += len(token.text)
        best = [token.best and dict([token.best]) for token in piece.tokens]
        return Logprobs(
            tokens=[token.text for token in piece.tokens],
            token_logprobs=[token.logprob for token in piece.tokens],
            top_logprobs=best if self._body.logprobs else None,
            text_offset=offsets,
        )


def usage(done: Sequence[Done]) -> Usage:
    """The counts of tokens of all prompts together."""
    read, generated = sum(one.num_prompt_tokens for one in done), sum(one.num_tokens for one in done)
    return Usage(prompt_tokens=read, completion_tokens=generated, total_tokens=read + generated)


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


async def _events(
    answer: CompletionBuilder, first: Piece, rest: AsyncGenerator[Piece, None]
) -> AsyncGenerator[str, None]:
    async with aclosing(rest):
        try:
            async for piece in _chained(first, rest):
                for chunk in answer.chunks(piece):
                    yield _event(chunk.model_dump(mode="json", exclude_unset=True))
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


def _event(value: Mapping[str, object]) -> str:
    # In ASCII: clients that cut lines as str.splitlines does would cut at U+2028, U+2029 and U+0085 too.
    return f"data: {json.dumps(value)}\n\n"
