"""OpenAI's routes: models, completions and answers in conversations, with the weights behind every token.

Both plan a request, wait for a slot, and make an answer or its chunks of the same pieces. Several answers of a request
run side by side in slots that are free; its place in the queue is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from engine.config import SamplingConfig
from engine.errors import ContextLengthExceededError
from engine.events import Done, Echo, Token
from ui.api.answer_builders import AnswerBuilder, ChatBuilder, Chunk, CompletionBuilder, Result, Scored, TextPiece
from ui.api.deps import GoneError, State, unless_gone
from ui.api.event_stream import EventStream, events, let_go
from ui.api.operations import within_answer_time
from ui.api.schema import EVENTS
from ui.api.schemas.completions import ChatRequest, CompletionRequest
from ui.api.schemas.generation import Generating
from ui.generation import model_host
from ui.generation.app_state import AppState
from ui.generation.known_models import known_models
from ui.generation.model_host import ModelHost, with_number
from workbench.answers.server import ChatCompletion, Completion, Model, ModelList
from workbench.errors import NotFoundError

if TYPE_CHECKING:
    from engine.inference.generate import Prompt
    from engine.loading.plan import GenerationPlan

router = APIRouter()

QUIET_SECONDS = 5.0  # after which a stream that waits for its first token sends a comment; clients wait for 10 and more
NUM_SEEDS = 2**64


@router.get("/v1/models")
def list_models(state: State) -> ModelList:
    """Every mixture and every enabled expert."""
    return ModelList(data=known_models(state.settings))


@router.get("/v1/models/{name:path}")
def show_model(name: str, state: State) -> Model:
    """One mixture or expert, by its name or an alias."""
    models = {model.id: model for model in known_models(state.settings)}
    models = {alias: model for model in models.values() for alias in model.aliases} | models
    if name not in models:
        raise NotFoundError("model", name, models)
    return models[name]


@router.post("/v1/completions", response_model=Completion, responses=EVENTS)
async def complete(body: CompletionRequest, request: Request, state: State) -> Completion | Response:
    """Text that goes on from each prompt, whole or as server-sent events."""
    plan, sampling = await _plan(state, body, body.sampling())
    await run_in_threadpool(state.generations.require_readable, plan, *body.prompt, num_new=min(1, body.max_tokens))
    pieces = within_answer_time(state.slots.stream(*_parts(state.generations, plan, sampling, body)), state)
    return await _respond(request, CompletionBuilder(plan, sampling, body), pieces)


@router.post("/v1/chat/completions", response_model=ChatCompletion, responses=EVENTS)
async def chat(body: ChatRequest, request: Request, state: State) -> ChatCompletion | Response:
    """The model's next message in a conversation, whole or as server-sent events."""
    plan, sampling = await _plan(state, body, body.sampling())
    values, render = body.chat_template_kwargs, state.generations.conversation
    plan, ids = await run_in_threadpool(render, plan, body.conversation(), body.evidence_from, values)
    await run_in_threadpool(state.generations.require_readable, plan, ids, num_new=1)
    parts = [partial(_answer, state.generations, plan, sampling, body, ids, 0, number) for number in range(body.n)]
    pieces = within_answer_time(state.slots.stream(*parts), state)
    return await _respond(request, ChatBuilder(plan, sampling, body), pieces)


async def _plan(state: AppState, body: Generating, sampling: SamplingConfig) -> tuple[GenerationPlan, SamplingConfig]:
    """The plan of a request and how tokens are drawn, with a seed."""
    plan = await run_in_threadpool(state.generations.plan, body.to_request(body.model))
    if sampling.logit_bias:
        await run_in_threadpool(state.generations.require_readable, plan, [max(sampling.logit_bias)])
    return plan, sampling if sampling.seed is not None else replace(sampling, seed=model_host.new_seed())


async def _respond(
    request: Request, answer: AnswerBuilder[Result, Chunk], pieces: AsyncGenerator[TextPiece, None]
) -> Result | Response:
    """The answer, or a stream of its chunks."""
    if not answer.body.stream:
        try:
            return await unless_gone(request, answer.result(pieces))
        except GoneError:
            await pieces.aclose()
            raise
    first = asyncio.ensure_future(anext(pieces))
    try:
        # The first piece is awaited here for a while: what fails before it is still an honest status.
        await unless_gone(request, asyncio.wait({first}, timeout=QUIET_SECONDS))
    except BaseException:
        await let_go(first, pieces)
        raise
    if first.done():
        first.result()  # raises what failed
    return EventStream(events(answer, first, pieces, QUIET_SECONDS), first.cancel)


def _parts(
    generations: ModelHost, plan: GenerationPlan, sampling: SamplingConfig, body: CompletionRequest
) -> list[Callable[[], Generator[TextPiece, None, None]]]:
    """What may run side by side: the answers. Prompts to score come one after another: they share no passes."""
    if body.echo:
        return [partial(_echoes, generations, plan, sampling, body)]
    return [
        partial(_answer, generations, plan, sampling, body, prompt, place, number)
        for place, prompt in enumerate(body.prompt)
        for number in range(body.n)
    ]


def _echoes(
    generations: ModelHost, plan: GenerationPlan, sampling: SamplingConfig, body: CompletionRequest
) -> Generator[TextPiece, None, None]:
    """Each prompt with its scores, and the answers to it."""
    for place, prompt in enumerate(body.prompt):
        try:
            echo = generations.echo(plan, prompt, body.logprobs or 0)
        except ContextLengthExceededError as problem:
            raise with_number(problem, place, len(body.prompt)) from problem
        prompt_ids = _prompt_ids(generations, plan, body, prompt)
        text = prompt if isinstance(prompt, str) else "".join(echo.tokens)
        for number in range(body.n):
            index = place * body.n + number
            yield TextPiece(index, text, tokens=_score_tokens(echo), prompt_ids=prompt_ids)
            if body.max_tokens:
                yield from _answer(generations, plan, sampling, body, prompt, place, number)
            else:
                yield TextPiece(index, "", done=Done("length", echo.num_tokens, 0), prompt_ids=prompt_ids)


def _answer(
    generations: ModelHost,
    plan: GenerationPlan,
    sampling: SamplingConfig,
    body: Generating,
    prompt: Prompt,
    place: int,
    number: int,
) -> Generator[TextPiece, None, None]:
    """One of the answers to the prompt at this place, with a seed of its own."""
    assert sampling.seed is not None
    own = replace(sampling, seed=(sampling.seed + number) % NUM_SEEDS)
    prompt_ids = _prompt_ids(generations, plan, body, prompt)
    try:
        with closing(generations.stream(plan, prompt, own, body.phrases())) as tokens:
            for one in tokens:
                yield _piece(place * body.n + number, one, prompt_ids)
    except ContextLengthExceededError as problem:
        raise with_number(problem, place, body.num_choices // body.n) from problem


def _prompt_ids(generations: ModelHost, plan: GenerationPlan, body: Generating, prompt: Prompt) -> list[int] | None:
    """The ids that are read for a prompt, where they are sent or counted."""
    is_needed = body.return_token_ids or body.counts_each_chunk
    return generations.host.prompt_ids(plan, prompt) if is_needed else None


def _piece(index: int, one: Token | Done, prompt_ids: list[int] | None) -> TextPiece:
    if isinstance(one, Done):
        return TextPiece(index, one.text, done=one, prompt_ids=prompt_ids)
    scored = Scored(one.id, one.text, one.logprob, [(other.text, other.logprob) for other in one.candidates])
    return TextPiece(index, one.text, one.weights, one.gates, [scored], prompt_ids=prompt_ids)


def _score_tokens(echo: Echo) -> list[Scored]:
    """The tokens of a prompt, each with the most probable ones in its place; None in place of the first."""
    tops: list[list[tuple[str, float]] | None] = [None if best is None else [best] for best in echo.best]
    for place, candidates in enumerate(echo.candidates):
        tops[place] = [(one.text, one.logprob) for one in candidates] or tops[place]
    return [Scored(None, *columns) for columns in zip(echo.tokens, echo.logprobs, tops, strict=True)]
