"""POST /v1/completions and /v1/chat/completions: OpenAI's shapes, with the weights behind every token.

Both plan a request, wait for a slot, and make an answer or its chunks of the same pieces.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.errors import Problem
from engine.events import Done, Echo, GateWeights, Token
from ui.api.deps import Gone, State, unless_gone
from ui.api.error_responses import error_body
from ui.api.schemas import ChatRequest, CompletionRequest, Generating
from ui.generation.model_host import ModelHost
from workbench.answers.server import (
    ChatAnswer,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprob,
    ChatLogprobs,
    ChunkChoice,
    Completion,
    CompletionChoice,
    CompletionChunk,
    CompletionHead,
    Logprobs,
    TopLogprob,
    Usage,
)

if TYPE_CHECKING:
    from engine.inference.prompt import Prompt
    from workbench.generation import GenerationPlan

Result = TypeVar("Result", Completion, ChatCompletion)
Chunk = TypeVar("Chunk", CompletionChunk, ChatCompletionChunk)
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
    pieces = state.slots.stream(lambda: _pieces(state.generations, plan, body))
    return await _respond(request, CompletionBuilder(plan, body), pieces)


@router.post("/v1/chat/completions", response_model=ChatCompletion)
async def chat(body: ChatRequest, request: Request, state: State) -> ChatCompletion | Response:
    """The model's next message in a conversation, whole or as server-sent events."""
    plan = await run_in_threadpool(state.generations.plan, body.to_request(body.model))
    ids = await run_in_threadpool(state.generations.conversation_ids, plan, body.conversation())
    await run_in_threadpool(state.generations.require_readable, plan, ids)
    pieces = state.slots.stream(lambda: _continued(state.generations, plan, body, ids))
    return await _respond(request, ChatBuilder(plan, body), pieces)


async def _respond(
    request: Request, answer: AnswerBuilder[Result, Chunk], pieces: AsyncGenerator[Piece, None]
) -> Result | Response:
    """The answer, or a stream of its chunks."""
    try:
        if not answer.body.stream:
            return await unless_gone(request, answer.result(pieces))
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
        yield from _continued(generations, plan, body, prompt, index)


def _continued(
    generations: ModelHost, plan: GenerationPlan, body: CompletionRequest | ChatRequest, prompt: Prompt, index: int = 0
) -> Generator[Piece, None, None]:
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


class AnswerBuilder(ABC, Generic[Result, Chunk]):
    """Makes an answer, or its chunks, of pieces."""

    def __init__(self, plan: GenerationPlan, body: Generating, num_choices: int) -> None:
        self.body = body
        self._manifest = plan.manifest()
        self._num_choices = num_choices
        self._created = int(time.time())
        self._done: list[Done] = []

    @abstractmethod
    def _result(self, pieces: Sequence[Sequence[Piece]]) -> Result:
        """The answer made of the pieces of each choice."""

    @abstractmethod
    def _chunk(self, piece: Piece | None, **extras: Any) -> Chunk:
        """A piece of the stream; None is the chunk that has only counts. Fields that it does not carry are unset."""

    async def result(self, pieces: AsyncGenerator[Piece, None]) -> Result:
        """The answer in one object."""
        by_choice: list[list[Piece]] = [[] for _ in range(self._num_choices)]
        async with aclosing(pieces):
            async for piece in pieces:
                by_choice[piece.index].append(piece)
        return self._result(by_choice)

    def chunks(self, piece: Piece) -> list[Chunk]:
        """A piece of the stream; the last one carries the manifest, and the counts if they were requested."""
        if piece.done is not None:
            self._done.append(piece.done)
        if len(self._done) < self._num_choices:
            return [self._chunk(piece)]
        last, options = self._chunk(piece, manifest=self._manifest), self.body.stream_options
        return [last, self._chunk(None, usage=usage(self._done))] if options and options.include_usage else [last]


def _joined(pieces: Sequence[Piece]) -> Piece:
    """The text and the tokens of all pieces of a choice."""
    text, tokens = "".join(piece.text for piece in pieces), [token for piece in pieces for token in piece.tokens]
    return Piece(pieces[0].index, text, tokens=tokens, done=pieces[-1].done)


def _all_weights(pieces: Sequence[Piece]) -> list[dict[str, float]]:
    return [dict(piece.weights) for piece in pieces if piece.weights is not None]


def _all_gates(pieces: Sequence[Piece]) -> list[dict[str, GateWeights]]:
    return [dict(piece.gates) for piece in pieces if piece.gates is not None]


def _weights(piece: Piece) -> dict[str, float] | None:
    return None if piece.weights is None else dict(piece.weights)


def _gates(piece: Piece) -> dict[str, GateWeights] | None:
    return None if piece.gates is None else dict(piece.gates)


def _finish_reason(piece: Piece) -> str | None:
    return None if piece.done is None else FINISH[piece.done.reason]


class CompletionBuilder(AnswerBuilder[Completion, CompletionChunk]):
    """Makes a completion, with a choice for each prompt."""

    body: CompletionRequest

    def __init__(self, plan: GenerationPlan, body: CompletionRequest) -> None:
        super().__init__(plan, body, len(body.prompt))
        self._head = dict(CompletionHead(id=f"cmpl-{uuid.uuid4().hex}", created=self._created, model=body.model))
        self._offsets = [0] * len(body.prompt)

    def _result(self, pieces: Sequence[Sequence[Piece]]) -> Completion:
        choices = [self._choice(own) for own in pieces]
        done = [own[-1].done for own in pieces if own[-1].done is not None]
        return Completion(**self._head, choices=choices, usage=usage(done), manifest=self._manifest)

    def _choice(self, pieces: Sequence[Piece]) -> CompletionChoice:
        joined = _joined(pieces)
        return CompletionChoice(
            index=joined.index,
            text=joined.text,
            logprobs=self._logprobs(joined),
            finish_reason=_finish_reason(joined),
            expert_weights=_all_weights(pieces),
            gate_weights=_all_gates(pieces),
        )

    def _chunk(self, piece: Piece | None, **extras: Any) -> CompletionChunk:
        if piece is None:
            return CompletionChunk(**self._head, choices=[], **extras)
        choice = ChunkChoice(
            index=piece.index,
            text=piece.text,
            logprobs=self._logprobs(piece),
            finish_reason=_finish_reason(piece),
            expert_weights=_weights(piece),
            gate_weights=_gates(piece),
        )
        return CompletionChunk(**self._head, choices=[choice], **extras)

    def _logprobs(self, piece: Piece) -> Logprobs | None:
        if self.body.logprobs is None:
            return None
        offsets = []
        for token in piece.tokens:
            offsets.append(self._offsets[piece.index])
            self._offsets[piece.index] += len(token.text)
        best = [token.best and dict([token.best]) for token in piece.tokens]
        return Logprobs(
            tokens=[token.text for token in piece.tokens],
            token_logprobs=[token.logprob for token in piece.tokens],
            top_logprobs=best if self.body.logprobs else None,
            text_offset=offsets,
        )


class ChatBuilder(AnswerBuilder[ChatCompletion, ChatCompletionChunk]):
    """Makes the one answer to a conversation."""

    body: ChatRequest

    def __init__(self, plan: GenerationPlan, body: ChatRequest) -> None:
        super().__init__(plan, body, 1)
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._role: list[Literal["assistant"]] = ["assistant"]  # of the first chunk

    def _result(self, pieces: Sequence[Sequence[Piece]]) -> ChatCompletion:
        [own] = pieces
        joined = _joined(own)
        choice = ChatChoice(
            message=ChatAnswer(content=joined.text),
            logprobs=self._logprobs(joined),
            finish_reason=_finish_reason(joined),
            expert_weights=_all_weights(own),
            gate_weights=_all_gates(own),
        )
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self.body.model,
            choices=[choice],
            usage=usage([joined.done] if joined.done else []),
            manifest=self._manifest,
        )

    def _chunk(self, piece: Piece | None, **extras: Any) -> ChatCompletionChunk:
        choices = [] if piece is None else [self._chunk_choice(piece)]
        return ChatCompletionChunk(
            id=self._id,
            object="chat.completion.chunk",
            created=self._created,
            model=self.body.model,
            choices=choices,
            **extras,
        )

    def _chunk_choice(self, piece: Piece) -> ChatChunkChoice:
        role = {"role": self._role.pop()} if self._role else {}
        return ChatChunkChoice(
            index=piece.index,
            delta=ChatDelta(content=piece.text, **role),
            logprobs=self._logprobs(piece),
            finish_reason=_finish_reason(piece),
            expert_weights=_weights(piece),
            gate_weights=_gates(piece),
        )

    def _logprobs(self, piece: Piece) -> ChatLogprobs | None:
        return ChatLogprobs(content=list(map(self._logprob, piece.tokens))) if self.body.logprobs else None

    def _logprob(self, token: Scored) -> ChatLogprob:
        best = [token.best] if self.body.top_logprobs and token.best else []
        return ChatLogprob(
            token=token.text,
            logprob=0.0 if token.logprob is None else token.logprob,
            bytes=list(token.text.encode()),
            top_logprobs=[TopLogprob(token=text, logprob=nats, bytes=list(text.encode())) for text, nats in best],
        )


def usage(done: Sequence[Done]) -> Usage:
    """The counts of tokens of all prompts together."""
    read, generated = sum(one.num_prompt_tokens for one in done), sum(one.num_tokens for one in done)
    return Usage(prompt_tokens=read, completion_tokens=generated, total_tokens=read + generated)


class EventStream(StreamingResponse):
    """Server-sent events; the generator is closed in any case: a client that leaves frees its slot at once.

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


async def _events(
    answer: AnswerBuilder[Result, Chunk], first: Piece, rest: AsyncGenerator[Piece, None]
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
