"""OpenAI's routes: models, completions and answers in conversations, with the weights behind every token.

Both plan a request, wait for a slot, and make an answer or its chunks of the same pieces. Several answers of a request
run side by side in slots that are free; its place in the queue is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
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
    """Every mixture, every enabled expert, and every seed model as it is (`seed:NAME`)."""
    return ModelList(data=known_models(state.settings))


@router.get("/v1/models/{name:path}")
def show_model(name: str, state: State) -> Model:
    """One mixture or expert, by its name or an alias; `seed:NAME` is a seed model as it is."""
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
    generation = _Generation(state.generations, plan, sampling, body)
    parts = [partial(generation.echoes, body)] if body.echo else generation.parts(body.prompt)
    pieces = within_answer_time(state.slots.stream(*parts), state)
    return await _respond(request, CompletionBuilder(plan, sampling, body), pieces)


@router.post("/v1/chat/completions", response_model=ChatCompletion, responses=EVENTS)
async def chat(body: ChatRequest, request: Request, state: State) -> ChatCompletion | Response:
    """The model's next message in a conversation, whole or as server-sent events."""
    plan, sampling = await _plan(state, body, body.sampling())
    values, render = body.chat_template_kwargs, state.generations.conversation
    plan, ids = await run_in_threadpool(render, plan, body.conversation(), body.evidence_from, values)
    await run_in_threadpool(state.generations.require_readable, plan, ids, num_new=1)
    parts = _Generation(state.generations, plan, sampling, body).parts([ids])
    pieces = within_answer_time(state.slots.stream(*parts), state)
    return await _respond(request, ChatBuilder(plan, sampling, body), pieces)


async def _plan(state: AppState, body: Generating, sampling: SamplingConfig) -> tuple[GenerationPlan, SamplingConfig]:
    """The plan of a request and how tokens are drawn, with a seed."""
    plan = await run_in_threadpool(state.generations.plan, body.to_request(body.model), sampling.num_candidates)
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


@dataclass(frozen=True)
class _Generation:
    """What makes the pieces of a request's answers, from its plan."""

    host: ModelHost
    plan: GenerationPlan
    sampling: SamplingConfig
    body: Generating

    def parts(self, prompts: Sequence[Prompt]) -> list[Callable[[], Generator[TextPiece, None, None]]]:
        """What may run side by side: the answers."""
        numbers = [(number, answer) for number in range(len(prompts)) for answer in range(self.body.n)]
        return [partial(self._answer, prompts, number, answer) for number, answer in numbers]

    def echoes(self, body: CompletionRequest) -> Generator[TextPiece, None, None]:
        """Each prompt with its scores, and the answers to it, one after another: scoring shares no passes."""
        for number, prompt in enumerate(body.prompt):
            try:
                echo = self.host.echo(self.plan, prompt, body.logprobs or 0)
            except ContextLengthExceededError as problem:
                raise with_number(problem, number, len(body.prompt)) from problem
            prompt_ids = self._prompt_ids(prompt)
            text = prompt if isinstance(prompt, str) else "".join(echo.tokens)
            for answer in range(body.n):
                index = number * body.n + answer
                yield TextPiece(index, text, tokens=_score_tokens(echo), prompt_ids=prompt_ids)
                if body.max_tokens:
                    yield from self._answer(body.prompt, number, answer)
                else:
                    yield TextPiece(index, "", done=Done("length", echo.num_tokens, 0), prompt_ids=prompt_ids)

    def _answer(self, prompts: Sequence[Prompt], number: int, answer: int) -> Generator[TextPiece, None, None]:
        """One of the answers to the prompt with this number, with a seed of its own."""
        assert self.sampling.seed is not None
        sampling = replace(self.sampling, seed=(self.sampling.seed + answer) % NUM_SEEDS)
        prompt_ids = self._prompt_ids(prompts[number])
        try:
            with closing(self.host.stream(self.plan, prompts[number], sampling, self.body.phrases())) as tokens:
                for token in tokens:
                    yield _piece(number * self.body.n + answer, token, prompt_ids)
        except ContextLengthExceededError as problem:
            raise with_number(problem, number, len(prompts)) from problem

    def _prompt_ids(self, prompt: Prompt) -> list[int] | None:
        """The ids that are read for a prompt, where they are sent or counted."""
        is_needed = self.body.return_token_ids or self.body.counts_each_chunk
        return self.host.host.prompt_ids(self.plan, prompt) if is_needed else None


def _piece(index: int, token: Token | Done, prompt_ids: list[int] | None) -> TextPiece:
    if isinstance(token, Done):
        return TextPiece(index, token.text, done=token, prompt_ids=prompt_ids)
    scored = Scored(token.id, token.text, token.logprob, [(other.text, other.logprob) for other in token.candidates])
    return TextPiece(index, token.text, token.weights, token.gates, [scored], prompt_ids=prompt_ids)


def _score_tokens(echo: Echo) -> list[Scored]:
    """The tokens of a prompt, each with the most probable ones in its place; None in place of the first."""
    tops: list[list[tuple[str, float]] | None] = [None if best is None else [best] for best in echo.best]
    for index, candidates in enumerate(echo.candidates):
        tops[index] = [(candidate.text, candidate.logprob) for candidate in candidates] or tops[index]
    return [Scored(None, *columns) for columns in zip(echo.tokens, echo.logprobs, tops, strict=True)]
