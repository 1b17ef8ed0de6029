"""What the link to a comparison opens: the request that makes each text again, and what of it differs today."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.errors import Problem
from workbench.answers.history import ComparedAnswerCard, ComparisonCard, LinkedAnswer, OpenedLink
from workbench.answers.mixture_request import MixtureRequest
from workbench.answers.posteriors import Manifest
from workbench.answers.stored_answer import StoredAnswer, StoredChoice
from workbench.requests.verification import changed_since

if TYPE_CHECKING:
    from engine.loading.plan import GenerationPlan


def open_link(card: ComparisonCard, plan: Callable[[MixtureRequest], GenerationPlan]) -> OpenedLink:
    """Plans every answer of a comparison as it was made. Generates nothing and loads no weights.

    An answer whose model, experts or files are gone has the problem in words; of a comparison without stored text only
    models and sampling are known.
    """
    return OpenedLink(comparison=card, answers=[_linked(card, answer, plan) for answer in card.answers])


def _linked(
    card: ComparisonCard, answer: ComparedAnswerCard, plan: Callable[[MixtureRequest], GenerationPlan]
) -> LinkedAnswer:
    stored = StoredAnswer(manifest=answer.manifest, choices=[])
    try:
        changed, problem = changed_since(answer.manifest, Manifest.of(plan(stored.request()))), ""
    except Problem as missing:
        changed, problem = [], missing.problem
    return LinkedAnswer(letter=answer.letter, request=_request(card, answer), changed=changed, problem=problem)


def _request(card: ComparisonCard, answer: ComparedAnswerCard) -> dict[str, Any]:
    manifest = answer.manifest
    experts = [
        {"id": one.name, "weight": one.weight, **({} if one.parts is None else {"parts": one.parts})}
        for one in manifest.experts
    ]
    text: dict[str, Any] = {"prompt": card.prompt}
    if card.is_chat:
        text = {"messages": [dict(one) for one in card.messages]}
        text |= {} if manifest.evidence_from else {"evidence_from": "start"}  # as it was read
    body = {"model": manifest.model, "experts": experts, "gate": manifest.gate, **_sampling(answer), **text}
    return {**body, "return_token_ids": True}


def _sampling(answer: ComparedAnswerCard) -> dict[str, Any]:
    """The fields of the request: its own bound of tokens, or those that an answer had when it was stopped."""
    choice = StoredChoice(index=answer.choices[0].index if answer.choices else 0)
    drawn = asdict(StoredAnswer(manifest=answer.manifest, choices=[]).sampling(choice))
    stopped = answer.choices and answer.choices[0].finish_reason is None
    bound = answer.num_tokens if stopped else (answer.manifest.sampling or {}).get("max_tokens", answer.num_tokens)
    del drawn["num_candidates"]
    return {**drawn, "max_tokens": max(1, bound)}
