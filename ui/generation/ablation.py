"""Ablation: the perplexity of a text without each expert, and without each part of an expert.

Nothing is sampled again: the text stays as it is, and each step is a forward pass with one of them switched off.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from engine.statistics.perplexity import perplexity_of
from workbench.specs.requests import MixtureRequest

if TYPE_CHECKING:
    from engine.loading.plan import GenerationPlan
    from ui.generation.app_state import AppState


@dataclass(frozen=True)
class Without:
    """A text under a model that lacks something; `lost_most` is the word that became the most unlikely, in nats."""

    name: str  # empty: nothing is lacking
    perplexity: float
    lost_most: tuple[str, float] = ("", 0.0)


async def without_each(
    state: AppState, request: MixtureRequest, plan: GenerationPlan, text: str
) -> AsyncGenerator[Without, None]:
    """The text as it is first, then without each expert (where there are two or more) and each active part."""
    read = await state.slots.call(state.generations.posterior, plan, text)
    yield Without("", _perplexity(read.logprobs))
    for name, lacking in _each(request, plan):
        other = await run_in_threadpool(state.generations.plan, lacking, only_reads=True)
        other = replace(other, precision=plan.precision)
        logprobs = (await state.slots.call(state.generations.posterior, other, text)).logprobs
        losses = [after - before for before, after in zip(read.logprobs, logprobs, strict=True)]
        worst = min(range(len(losses)), key=losses.__getitem__)
        yield Without(name, _perplexity(logprobs), (read.tokens[worst], losses[worst]))


def _each(request: MixtureRequest, plan: GenerationPlan) -> Iterator[tuple[str, MixtureRequest]]:
    names = [expert.name for expert in plan.experts]
    for name in names if len(names) > 1 else ():
        yield name, replace(request, active=[one for one in names if one != name])
    for expert in plan.experts:
        for part in expert.parts or ():
            left = [one for one in expert.parts or () if one != part]
            yield f"{expert.name}: {part}", replace(request, parts={**request.parts, expert.name: left})


def _perplexity(logprobs: list[float]) -> float:
    return perplexity_of(-sum(logprobs) / len(logprobs))
