"""POST /v1/completions and /v1/chat/completions: OpenAI's shapes, with the weights behind every token.

Both plan a request, wait for a slot, and make an answer or its chunks of the same pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from engine.config import SamplingConfig
from engine.errors import ContextLengthExceeded
from engine.events import Done, Echo, Token
from ui.api.answer_builders import AnswerBuilder, ChatBuilder, Chunk, CompletionBuilder, Piece, Result, Scored
from ui.api.deps import Gone, State, unless_gone
from ui.api.event_stream import EventStream, events, let_go
from ui.api.operations import bounded
from ui.api.schema import EVENTS
from ui.api.schemas.chat import ChatRequest
from ui.api.schemas.completion import CompletionRequest
from ui.api.schemas.generation import Generating
from ui.generation import model_host
from ui.generation.app_state import AppState
from ui.generation.model_host import ModelHost, numbered
from workbench.answers.server import ChatCompletion, Completion

if TYPE_CHECKING:
    from engine.inference.prompt import Prompt
    from workbench.requests.generation import GenerationPlan

router = APIRouter()

CLIENT_LEFT = 499  # nginx's code for a client that has disconnected
QUIET_SECONDS = 5.0  # after which a stream that waits for its first token sends a comment; clients wait for 10 and more
NUM_SEEDS = 2**64


@router.post("/v1/completions", response_model=Completion, responses=EVENTS)
async def complete(body: CompletionRequest, request: Request, state: State) -> Completion | Response:
    """Text that goes on from each prompt, whole or as server-sent events."""
    plan, sampling = await _planned(state, body, body.sampling())
    await run_in_threadpool(state.generations.require_readable, plan, *body.prompt)
    # One slot for all answers, one after the other: a request has one place in the queue.
    pieces = bounded(state.slots.stream(lambda: _pieces(state.generations, plan, sampling, body)), state)
    return await _respond(request, CompletionBuilder(plan, sampling, body), pieces)


@router.post("/v1/chat/completions", response_model=ChatCompletion, responses=EVENTS)
async def chat(body: ChatRequest, request: Request, state: State) -> ChatCompletion | Response:
    """The model's next message in a conversation, whole or as server-sent events."""
    plan, sampling = await _planned(state, body, body.sampling())
    ids = await run_in_threadpool(state.generations.conversation_ids, plan, body.conversation())
    await run_in_threadpool(state.generations.require_readable, plan, ids)
    pieces = bounded(state.slots.stream(lambda: _answers(state.generations, plan, sampling, body, ids)), state)
    return await _respond(request, ChatBuilder(plan, sampling, body), pieces)


async def _planned(
    state: AppState, body: Generating, sampling: SamplingConfig
) -> tuple[GenerationPlan, SamplingConfig]:
    """The plan of a request and how tokens are drawn, with a seed."""
    plan = await run_in_threadpool(state.generations.plan, body.to_request(body.model))
    if sampling.logit_bias:
        await run_in_threadpool(state.generations.require_readable, plan, [max(sampling.logit_bias)])
    return plan, sampling if sampling.seed is not None else replace(sampling, seed=model_host.new_seed())


async def _respond(
    request: Request, answer: AnswerBuilder[Result, Chunk], pieces: AsyncGenerator[Piece, None]
) -> Result | Response:
    """The answer, or a stream of its chunks."""
    if not answer.body.stream:
        try:
            return await unless_gone(request, answer.result(pieces))
        except Gone:
            await pieces.aclose()
            return Response(status_code=CLIENT_LEFT)
    first = asyncio.ensure_future(anext(pieces))
    try:
        # The first piece is awaited here for a while: what fails before it is still an honest status.
        await unless_gone(request, asyncio.wait({first}, timeout=QUIET_SECONDS))
    except BaseException as error:
        await let_go(first, pieces)
        if isinstance(error, Gone):
            return Response(status_code=CLIENT_LEFT)
        raise
    if first.done():
        first.result()  # raises what failed
    return EventStream(events(answer, first, pieces, QUIET_SECONDS), first.cancel)


def _pieces(
    generations: ModelHost, plan: GenerationPlan, sampling: SamplingConfig, body: CompletionRequest
) -> Generator[Piece, None, None]:
    for place, prompt in enumerate(body.prompt):
        try:
            echo = generations.echo(plan, prompt, body.logprobs or 0) if body.echo else None
            yield from _answers(generations, plan, sampling, body, prompt, place * body.n, echo)
        except ContextLengthExceeded as problem:
            raise numbered(problem, place, len(body.prompt)) from problem


def _answers(
    generations: ModelHost,
    plan: GenerationPlan,
    sampling: SamplingConfig,
    body: Generating,
    prompt: Prompt,
    first: int = 0,
    echo: Echo | None = None,
) -> Generator[Piece, None, None]:
    """The answers to one prompt, whose choices count from `first`."""
    prompt_ids = generations.prompt_ids(plan, prompt) if body.return_token_ids else None
    for number in range(body.n):
        index = first + number
        if echo is not None:
            text = prompt if isinstance(prompt, str) else "".join(echo.tokens)
            yield Piece(index, text, tokens=_scored(echo), prompt_ids=prompt_ids)
            if isinstance(body, CompletionRequest) and body.max_tokens == 0:
                yield Piece(index, "", done=Done("length", echo.num_tokens, 0), prompt_ids=prompt_ids)
                continue
        assert sampling.seed is not None
        own = replace(sampling, seed=(sampling.seed + number) % NUM_SEEDS)
        with closing(generations.stream(plan, prompt, own, body.phrases())) as tokens:
            for one in tokens:
                yield _piece(index, one, prompt_ids)


def _piece(index: int, one: Token | Done, prompt_ids: list[int] | None) -> Piece:
    if isinstance(one, Done):
        return Piece(index, one.text, done=one, prompt_ids=prompt_ids)
    scored = Scored(one.id, one.text, one.logprob, [(other.text, other.logprob) for other in one.candidates])
    return Piece(index, one.text, one.weights, one.gates, [scored], prompt_ids=prompt_ids)


def _scored(echo: Echo) -> list[Scored]:
    """The tokens of a prompt, each with the most probable ones in its place; None in place of the first."""
    tops: list[list[tuple[str, float]] | None] = [None if best is None else [best] for best in echo.best]
    for place, candidates in enumerate(echo.candidates):
        tops[place] = [(one.text, one.logprob) for one in candidates] or tops[place]
    return [Scored(None, *columns) for columns in zip(echo.tokens, echo.logprobs, tops, strict=True)]
