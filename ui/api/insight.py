"""What OpenAI's API has no words for: posteriors of a text, perplexities of a mixture, the server's health."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from ui.addresses import registry_id
from ui.api.completions import CLIENT_LEFT
from ui.api.house import Gone, InHouse, unless_gone
from ui.api.schemas import (
    ContrastRequest,
    ForgettingRequest,
    MixRequest,
    ModesRequest,
    NearestRequest,
    PosteriorMapRequest,
    PosteriorRequest,
    PriorRequest,
    RemovalRequest,
)
from ui.generations import (
    compare_modes,
    contrast,
    estimate_prior,
    forgetting,
    mix_scores,
    nearest,
    posterior_map,
    removal_table,
)

router = APIRouter()


@router.get("/healthz")
def health(house: InHouse) -> dict[str, Any]:
    """That the server is awake, for which registry, where it computes (null: not yet) and what lies in its memory."""
    return {
        "status": "ok",
        "version": version("expert-workbench"),
        "registry": registry_id(house.settings),
        "device": house.generations.device(),
        "device_wish": house.settings.device,
        "loaded": house.generations.loaded(),
        "busy": house.slots.num_busy,
    }


@router.post("/v1/workbench/posterior", response_model=None)
async def posterior(asked: PosteriorRequest, request: Request, house: InHouse) -> Response:
    """The weight of every expert at every token of a text."""
    plan = await run_in_threadpool(house.generations.plan, asked.wish(asked.model))
    work = house.slots.call(house.generations.posterior, plan, asked.text)
    try:
        return JSONResponse({**await unless_gone(request, work), "manifest": plan.manifest()})
    except Gone:
        return Response(status_code=CLIENT_LEFT)


@router.post("/v1/workbench/modes")
def modes(asked: ModesRequest, house: InHouse) -> dict[str, Any]:
    """Every domain's perplexity under each of the paper's ways to use experts, from stored scores."""
    return compare_modes(house.settings, asked)


@router.post("/v1/workbench/removal")
def removal(asked: RemovalRequest, house: InHouse) -> dict[str, Any]:
    """What removing each expert costs on its own domain, from stored scores: +Expert, –Expert, –Domain."""
    return removal_table(house.settings, asked)


@router.post("/v1/workbench/forgetting")
def forgotten(asked: ForgettingRequest, house: InHouse) -> dict[str, Any]:
    """How much a model forgot: its perplexity on each domain before and after, from stored scores."""
    return forgetting(house.settings, asked)


@router.post("/v1/workbench/nearest")
def proposed_parent(asked: NearestRequest, house: InHouse) -> dict[str, Any]:
    """The expert whose copy should learn a new domain, with the posterior of every expert, from stored scores."""
    return nearest(house.settings, asked)


@router.post("/v1/workbench/mix")
def mix(asked: MixRequest, house: InHouse) -> dict[str, Any]:
    """A mixture's perplexity on every domain, from stored scores: exact, without a forward pass."""
    return mix_scores(house.settings, asked.wish(), asked.split)


@router.post("/v1/workbench/posteriors")
def posteriors(asked: PosteriorMapRequest, house: InHouse) -> dict[str, Any]:
    """Which expert each domain's text is taken for, and the way there block by block, from stored scores."""
    return posterior_map(house.settings, asked)


@router.post("/v1/workbench/contrast")
def contrasted(asked: ContrastRequest, house: InHouse) -> dict[str, Any]:
    """The passages of a domain on which one expert does worst and best against another, from stored scores."""
    return contrast(house.settings, asked)


@router.post("/v1/workbench/priors")
def estimated_prior(asked: PriorRequest, house: InHouse) -> dict[str, Any]:
    """A new prior: the mean posterior on exactly so many blocks of a domain's held-out text, from stored scores."""
    return estimate_prior(house.settings, asked)
