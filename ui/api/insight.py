"""What OpenAI's API does not have: posteriors of a text, perplexities of a mixture."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ui.api.completions import CLIENT_LEFT
from ui.api.deps import Gone, State, read, unless_gone, write
from ui.api.schemas.analysis import (
    CalibrationRequest,
    ClusterGridRequest,
    ContrastRequest,
    ForgettingRequest,
    InferenceModesRequest,
    MixRequest,
    NearestRequest,
    PosteriorMapRequest,
    PosteriorRequest,
    PriorRequest,
    RemovalRequest,
)
from ui.generation.model_host import mix_scores
from workbench.analysis import calibration, cluster_grid, parent_proposal, posteriors, scores, token_comparison
from workbench.analysis.changes import forgetting, removal
from workbench.answers.calibrations import EvidenceCalibration
from workbench.answers.changes import Forgetting, RemovalTable
from workbench.answers.perplexities import ClusterGrid, InferenceModeComparison, MixedScores
from workbench.answers.posteriors import ParentProposal, PosteriorAnswer, PosteriorMap, TokenComparison
from workbench.registry import priors
from workbench.registry.cards import PriorCard
from workbench.requests.body import RequestBody
from workbench.store.storage import get_storage

router = APIRouter()
Result = TypeVar("Result")


@router.post("/v1/workbench/posterior", response_model=PosteriorAnswer)
async def posterior(body: PosteriorRequest, request: Request, state: State) -> PosteriorAnswer | Response:
    """The weight of every expert at every token of a text, and of every part inside those of MoDE, block by block."""
    plan = await run_in_threadpool(state.generations.plan, body.to_request(body.model))
    await run_in_threadpool(state.generations.require_readable, plan, body.text)
    work = state.slots.call(state.generations.posterior, plan, body.text)
    try:
        answer = await unless_gone(request, work)
    except Gone:
        return Response(status_code=CLIENT_LEFT)
    return PosteriorAnswer(**dict(answer), manifest=plan.manifest())


@router.post("/v1/workbench/inference-modes")
def compare_modes(body: InferenceModesRequest, state: State) -> InferenceModeComparison:
    """Every domain's perplexity under each of the paper's inference modes, from stored scores."""
    return _from_scores(state, scores.compare_modes, body)


@router.post("/v1/workbench/removal")
def removal_table(body: RemovalRequest, state: State) -> RemovalTable:
    """What removing each expert costs on its own domain, from stored scores: +Expert, –Expert, –Domain."""
    return _from_scores(state, removal.removal_table, body)


@router.post("/v1/workbench/forgetting")
def measure_forgetting(body: ForgettingRequest, state: State) -> Forgetting:
    """How much a model forgot: its perplexity on each domain before and after, from stored scores."""
    return _from_scores(state, forgetting.forgetting, body)


@router.post("/v1/workbench/nearest")
def nearest_parent(body: NearestRequest, state: State) -> ParentProposal:
    """The expert whose copy should learn a new domain, with the posterior of every expert, from stored scores."""
    return _from_scores(state, parent_proposal.nearest_parent, body)


@router.post("/v1/workbench/mix")
def mix(body: MixRequest, state: State) -> MixedScores:
    """A mixture's perplexity on every domain, from stored scores: exact, without a forward pass."""
    return mix_scores(state.settings, body.to_request(), body.split)


@router.post("/v1/workbench/cluster-grid")
def compute_cluster_grid(body: ClusterGridRequest, state: State) -> ClusterGrid:
    """A cluster gate's perplexity at every temperature and top-k, from stored scores and distances."""
    return _from_scores(state, cluster_grid.cluster_grid, body)


@router.post("/v1/workbench/calibration")
def calibrate_evidence(body: CalibrationRequest, state: State) -> EvidenceCalibration:
    """The decay and the power of evidence that fit dev text of the training domains best, from stored scores.

    Nothing is saved; novel and test text are not read.
    """
    return _from_scores(state, calibration.calibrate_evidence, body)


@router.post("/v1/workbench/posteriors")
def posterior_map(body: PosteriorMapRequest, state: State) -> PosteriorMap:
    """Which expert each domain's text is taken for, and the way there block by block, from stored scores."""
    return _from_scores(state, posteriors.posterior_map, body)


@router.post("/v1/workbench/contrast")
def compare_tokens(body: ContrastRequest, state: State) -> TokenComparison:
    """The passages of a domain on which one expert does worst and best against another, from stored scores."""
    return _from_scores(state, token_comparison.compare_tokens, body)


@router.post("/v1/workbench/priors")
def estimate_prior(body: PriorRequest, state: State) -> PriorCard:
    """A new prior: the mean posterior on exactly so many blocks of a domain's held-out text, from stored scores."""
    estimate = _from_scores(state, scores.estimate_shares, body, without={"name"})
    return write(state, priors.keep_estimate, body.name, estimate)


def _from_scores(
    state: State, service: Callable[..., Result], request: RequestBody, without: Set[str] = frozenset()
) -> Result:
    """The answer of a service to a request, read from the registry in one short transaction."""
    given = {name: getattr(request, name) for name in type(request).model_fields if name not in without}
    return read(state, service, get_storage(state.settings), **given)
