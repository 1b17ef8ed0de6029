"""What OpenAI's API does not have: posteriors of a text, and a route for each question to stored scores."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from ui.api.deps import State, unless_gone
from ui.api.schemas.generation import MixFields
from ui.serving.security import MAX_BODY_BYTES
from workbench.answers.cards import PriorCard
from workbench.answers.posteriors import Manifest, PosteriorAnswer
from workbench.questions.posteriors import PriorRequest
from workbench.questions.question import Question, ask, known_questions
from workbench.registry import priors

router = APIRouter(prefix="/v1/workbench")


class PosteriorRequest(MixFields):
    """POST /v1/workbench/posterior."""

    model: str = Field(description="Name of a mixture or an expert; seed:NAME is a seed model as it is.")
    text: str = Field(min_length=1, max_length=MAX_BODY_BYTES, description="The text to read.")


@router.post("/posterior")
async def posterior(body: PosteriorRequest, request: Request, state: State) -> PosteriorAnswer:
    """The weight of every expert at every token of a text, and of every part inside experts, block by block."""
    plan = await run_in_threadpool(state.generations.plan, body.to_request(body.model), only_reads=True)
    await run_in_threadpool(state.generations.require_readable, plan, body.text)
    answer = await unless_gone(request, state.slots.call(state.generations.posterior, plan, body.text))
    return PosteriorAnswer(**vars(answer), manifest=Manifest.of(plan))


@router.post("/priors")
def estimate_prior(body: PriorRequest, state: State) -> PriorCard:
    """A new prior: the mean posterior on exactly so many blocks of a domain's held-out text, from stored scores."""
    return state.write(priors.keep_estimate, body.name, ask(body.answer, state.settings))


def _add_route(question: type[Question[Any]]) -> None:
    def answer(body: Question[Any], state: State) -> Any:
        return ask(body.answer, state.settings)

    answer.__annotations__["body"] = question
    answer.__name__, answer.__doc__ = question.operation or question.path.replace("-", "_"), question.__doc__
    router.post(f"/{question.path}", response_model=question.answer_type())(answer)


for _question in known_questions().values():
    _add_route(_question)
