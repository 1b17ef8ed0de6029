"""What OpenAI's API has no words for: posteriors of a text, perplexities of a mixture, the server's health."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from ui.api.completions import CLIENT_LEFT
from ui.api.deps import Gone, State, unless_gone
from ui.api.schemas import (
    ClusterGridRequest,
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
from ui.generation.model_host import mix_scores
from ui.serving.addresses import registry_id
from workbench.analysis import cluster_grid, forgetting, parent_proposal, posteriors, removal, scores, token_comparison
from workbench.registry import priors
from workbench.registry.database import reading, transaction
from workbench.store.storage import get_storage

router = APIRouter()
Answer = TypeVar("Answer")


@router.get("/healthz")
def health(house: State) -> dict[str, Any]:
    """That the server is awake, for which registry, where it computes (null: not yet) and what lies in its memory."""
    return {
        "status": "ok",
        "version": version("expert-workbench"),
        "registry": registry_id(house.settings),
        "device": house.generations.device(),
        "device_wish": house.settings.device,
        "loaded": house.generations.loaded(),
        "busy": house.slots.num_busy,
        "waiting": house.slots.num_waiting,
    }


@router.post("/v1/workbench/posterior", response_model=None)
async def posterior(asked: PosteriorRequest, request: Request, house: State) -> Response:
    """The weight of every expert at every token of a text, and of every part inside those of MoDE, block by block."""
    plan = await run_in_threadpool(house.generations.plan, asked.wish(asked.model))
    await run_in_threadpool(house.generations.require_readable, plan, asked.text)
    work = house.slots.call(house.generations.posterior, plan, asked.text)
    try:
        return JSONResponse({**await unless_gone(request, work), "manifest": plan.manifest()})
    except Gone:
        return Response(status_code=CLIENT_LEFT)


@router.post("/v1/workbench/modes")
def modes(asked: ModesRequest, house: State) -> dict[str, Any]:
    """Every domain's perplexity under each of the paper's ways to use experts, from stored scores."""
    return _from_scores(house, scores.compare_modes, asked.model_dump())


@router.post("/v1/workbench/removal")
def removals(asked: RemovalRequest, house: State) -> dict[str, Any]:
    """What removing each expert costs on its own domain, from stored scores: +Expert, –Expert, –Domain."""
    return _from_scores(house, removal.removal_table, asked.model_dump())


@router.post("/v1/workbench/forgetting")
def forgotten(asked: ForgettingRequest, house: State) -> dict[str, Any]:
    """How much a model forgot: its perplexity on each domain before and after, from stored scores."""
    return _from_scores(house, forgetting.forgetting, asked.model_dump())


@router.post("/v1/workbench/nearest")
def proposed_parent(asked: NearestRequest, house: State) -> dict[str, Any]:
    """The expert whose copy should learn a new domain, with the posterior of every expert, from stored scores."""
    return _from_scores(house, parent_proposal.nearest, asked.model_dump())


@router.post("/v1/workbench/mix")
def mix(asked: MixRequest, house: State) -> dict[str, Any]:
    """A mixture's perplexity on every domain, from stored scores: exact, without a forward pass."""
    return mix_scores(house.settings, asked.wish(), asked.split)


@router.post("/v1/workbench/cluster-grid")
def temperatures_and_top_ks(asked: ClusterGridRequest, house: State) -> dict[str, Any]:
    """A cluster gate's perplexity at every temperature and top-k, from stored scores and distances."""
    return _from_scores(house, cluster_grid.cluster_grid, asked.model_dump())


@router.post("/v1/workbench/posteriors")
def domain_posteriors(asked: PosteriorMapRequest, house: State) -> dict[str, Any]:
    """Which expert each domain's text is taken for, and the way there block by block, from stored scores."""
    return _from_scores(house, posteriors.posterior_map, asked.model_dump())


@router.post("/v1/workbench/contrast")
def contrasted(asked: ContrastRequest, house: State) -> dict[str, Any]:
    """The passages of a domain on which one expert does worst and best against another, from stored scores."""
    return _from_scores(house, token_comparison.compare_tokens, asked.model_dump())


@router.post("/v1/workbench/priors")
def estimated_prior(asked: PriorRequest, house: State) -> dict[str, Any]:
    """A new prior: the mean posterior on exactly so many blocks of a domain's held-out text, from stored scores."""
    shares = _from_scores(house, scores.estimate_shares, asked.model_dump(exclude={"name"}))
    with transaction(house.settings) as session:
        return priors.keep_estimate(session, asked.name, shares).model_dump()


def _from_scores(house: State, service: Callable[..., Answer], asked: dict[str, Any]) -> Answer:
    """What a service makes of the stored scores, in one short look at the registry."""
    with reading(house.settings) as session:
        return service(session, get_storage(house.settings), **asked)
