"""Perplexities from stored scores: of experts on each domain, and of a mixture; exact, without a forward pass."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pydantic import Field, model_validator
from sqlalchemy.orm import Session

from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import DomainMeasure, PerplexityTable, perplexity, perplexity_table
from workbench.analysis.scores import ScoredText, mixed_perplexities, scored_texts, without_distances
from workbench.answers.base import Answer
from workbench.questions.question import MixtureName, Question, Split, Unrouted
from workbench.requests.body import MAX_NAMED, AnyGateChange, FieldError, Names, gate_changes
from workbench.requests.planning import plan
from workbench.specs.requests import MixtureRequest
from workbench.store.storage import Storage


class PerplexitiesRequest(Question[PerplexityTable]):
    """The perplexity and accuracy of each expert on each domain, and its ratio to the in-domain expert."""

    path = "perplexities"

    mixture: str | None = Field(None, description="Name of a mixture; left out: all experts.")
    split: Split = "test"

    def answer(self, session: Session, storage: Storage) -> PerplexityTable:
        return perplexity_table(session, self.mixture, self.split)


class MixedDomain(DomainMeasure):
    """One domain under a mixture, and under each of its single experts."""

    without: list[str] = Field(
        default_factory=list,
        description="Experts that take part and are not scored on this text: the number is of the mixture without "
        "them.",
    )
    perplexity: float
    best_expert: str
    perplexity_by_expert: dict[str, float]


class MixedScores(Answer):
    """A mixture's perplexity on every domain."""

    experts: list[str]
    domains: list[MixedDomain]
    unrouted: Unrouted = Field([])
    seconds: float


class MixRequest(Question[MixedScores]):
    """A mixture's perplexity on every domain, from stored scores: exact, without a forward pass."""

    path = "mix"
    rows = "domains"

    mixture: MixtureName
    active: Names | None = Field(None, description="Experts that take part.")
    weights: dict[str, float] | None = Field(
        None,
        max_length=MAX_NAMED,
        description="Weights instead of the mixture's own; experts that are not listed get weight 0.",
    )
    gate: AnyGateChange | None = Field(None, description="Another gate, or changes to the mixture's own.")
    prior: str | None = Field(None, description="Name of a stored prior, instead of weights.")
    split: Split = "test"

    @model_validator(mode="after")
    def _one_weighing(self) -> MixRequest:
        if self.weights is not None and self.prior is not None:
            raise FieldError("prior", "give weights or a prior, not both")
        return self

    def to_request(self) -> MixtureRequest:
        """The request for the services."""
        return MixtureRequest(self.mixture, self.active, self.weights, gate_changes(self.gate), self.prior)

    def answer(self, session: Session, storage: Storage) -> MixedScores:
        return mix_scores(session, storage, self.to_request(), split=self.split)


QUESTION = (PerplexitiesRequest, MixRequest)


def mix_scores(
    session: Session,
    storage: Storage,
    request: MixtureRequest | str,
    *,
    split: HeldOutSplit = "test",
) -> MixedScores:
    """Every domain's perplexity under the mixture and under each single expert.

    An expert that is not scored on a domain's text is left out there, by name; the others keep their proportions.
    """
    started = time.perf_counter()
    planned = plan(session, storage, request)
    texts = scored_texts(session, planned, split)
    mixed = _mixed(session, storage, texts)
    rows = []
    for text in texts:
        names = [expert.name for expert in text.planned.experts]
        by_expert = dict(zip(names, map(perplexity, text.evaluations), strict=True))
        rows.append(
            MixedDomain(
                domain=text.domain,
                num_tokens=text.evaluations[0].num_tokens,
                block_size=text.evaluations[0].block_size,
                without=list(text.without),
                perplexity=mixed[text.domain],
                best_expert=min(by_expert, key=by_expert.__getitem__),
                perplexity_by_expert=by_expert,
            )
        )
    names = [expert.name for expert in planned.experts]
    unrouted = without_distances(session, planned, split)
    return MixedScores(experts=names, domains=rows, unrouted=unrouted, seconds=time.perf_counter() - started)


def _mixed(session: Session, storage: Storage, texts: Sequence[ScoredText]) -> dict[str, float]:
    """The mixture's perplexity by domain; texts that the same experts are scored on are summed side by side."""
    groups: dict[tuple[str, ...], list[ScoredText]] = {}
    for text in texts:
        groups.setdefault(text.without, []).append(text)
    mixed: dict[str, float] = {}
    for group in groups.values():
        values = mixed_perplexities(session, storage, group[0].planned, [text.evaluations for text in group])
        mixed.update(zip([text.domain for text in group], values, strict=True))
    return mixed
