"""The history of compared answers, and votes on them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ui.api.deps import State, unless_gone
from ui.present.text.ratings import ratings_csv
from workbench.analysis.ratings import RatingTables, rating_tables
from workbench.answers.history import (
    ComparisonCard,
    ComparisonPage,
    HistoryDeletion,
    Letter,
    NewComparison,
    NewVote,
    OpenedLink,
)
from workbench.registry import comparisons
from workbench.requests.verification import ComparisonVerification, linked_comparison, verify_comparison

router = APIRouter(prefix="/v1/workbench/comparisons")
ratings = APIRouter(prefix="/v1/workbench/ratings")
CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {}}}}
MOST = 200  # of one answer
Search = Annotated[str, Query(max_length=1000, description="Words that must stand in the prompt or in an answer.")]
Named = Annotated[str, Query(max_length=200)]


@router.post("", status_code=201)
def store_comparison(body: NewComparison, state: State) -> ComparisonCard:
    """Stores a prompt with the answers to it, as the API gave them; without their text if the history is off."""
    days = state.settings.history_days
    return state.write_by_viewer(comparisons.store_comparison, body, days)


@router.get("")
def list_comparisons(
    state: State,
    search: Search = "",
    model: Named = "",
    domain: Named = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = 50,
    offset: Annotated[int, Query(ge=0, le=2**31, description="Newer ones to leave out.")] = 0,
) -> ComparisonPage:
    """The history, the newest first."""
    return state.read(
        comparisons.list_comparisons,
        search=search,
        model=model,
        domain=domain,
        limit=limit,
        offset=offset,
        history_days=state.settings.history_days,
    )


@router.delete("")
def delete_history(
    state: State,
    older_than_days: Annotated[float, Query(ge=0, le=36_500, description="0: all of it.")] = 0.0,
    with_votes: Annotated[bool, Query(description="Delete votes, too; else they stay without any text.")] = False,
) -> HistoryDeletion:
    """Deletes the text of the history."""
    return state.write(comparisons.delete_history, older_than_days=older_than_days, with_votes=with_votes)


@router.get("/{id}")
def show_comparison(id: str, state: State) -> ComparisonCard:
    """One comparison: everything that makes its texts again. Each of its answers is one for `workbench verify`."""
    return state.read(comparisons.get_comparison, id, state.settings.history_days)


@router.delete("/{id}")
def delete_comparison(id: str, state: State) -> HistoryDeletion:
    """Deletes a comparison with its votes."""
    return state.write(comparisons.delete_comparison, id)


@router.get("/{id}/link")
def open_link(id: str, state: State) -> OpenedLink:
    """What a link to a comparison opens: the request that makes each text again, and what of it differs today."""
    return linked_comparison(show_comparison(id, state), state.generations.plan)


@router.post("/{id}/verify")
async def verify(id: str, request: Request, state: State) -> ComparisonVerification:
    """Generates every answer of a comparison again by its manifest, and compares the tokens."""
    stored = comparisons.replayable(await run_in_threadpool(show_comparison, id, state))
    host = state.generations
    return await unless_gone(request, state.slots.call(verify_comparison, stored, host.plan, host.stream))


@router.post("/{id}/vote")
def vote(id: str, body: NewVote, state: State) -> ComparisonCard:
    """Records which of two answers is better; another vote on the same two replaces it."""
    return state.write_by_viewer(comparisons.vote, id, body)


@router.delete("/{id}/vote")
def withdraw_vote(id: str, state: State, a: Letter = "A", b: Letter = "B") -> ComparisonCard:
    """Deletes the vote on two answers."""
    return state.write_by_viewer(comparisons.withdraw_vote, id, a, b)


@ratings.get("", response_model=RatingTables, responses=CSV)
def show_ratings(
    state: State,
    domain: Annotated[str, Query(max_length=200, description="Only prompts of this domain.")] = "",
    blind_only: Annotated[bool, Query(description="Only votes before which the names were hidden.")] = False,
    by_name: Annotated[bool, Query(description="Count all setups that had one name as one model.")] = False,
    format: Annotated[Literal["json", "csv"], Query(description="csv: one row for each model and table.")] = "json",
) -> RatingTables | Response:
    """Bradley-Terry ratings by the votes, with 95 % intervals, on all prompts and by domain."""
    answer = state.read(rating_tables, domain=domain, blind_only=blind_only, by_name=by_name)
    return Response(ratings_csv(answer), media_type="text/csv") if format == "csv" else answer
