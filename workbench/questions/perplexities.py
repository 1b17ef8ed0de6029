"""Perplexities from stored scores: of experts on each domain, and of a mixture; exact, without a forward pass."""

from __future__ import annotations

import time

from pydantic import Field, model_validator
from sqlalchemy.orm import Session

from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import DomainMeasure, PerplexityTable, perplexity, perplexity_table
from workbench.analysis.scores import mixed_perplexities, scored_domains
from workbench.answers.base import Answer
from workbench.questions.question import MixtureName, Question, Split
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

    perplexity: float
    best_expert: str
    perplexity_by_expert: dict[str, float]


class MixedScores(Answer):
    """A mixture's perplexity on every domain."""

    experts: list[str]
    domains: list[MixedDomain]
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
    """Every domain's perplexity under the mixture and under each single expert."""
    started = time.perf_counter()
    planned = plan(session, storage, request)
    names = [expert.name for expert in planned.experts]
    scored = scored_domains(session, planned, split)
    mixed = mixed_perplexities(session, storage, planned, list(scored.values()))
    rows = []
    for (domain, evaluations), of_mixture in zip(scored.items(), mixed, strict=True):
        by_expert = dict(zip(names, map(perplexity, evaluations), strict=True))
        rows.append(
            MixedDomain(
                domain=domain,
                num_tokens=evaluations[0].num_tokens,
                block_size=evaluations[0].block_size,
                perplexity=of_mixture,
                best_expert=min(by_expert, key=by_expert.__getitem__),
                perplexity_by_expert=by_expert,
            )
        )
    return MixedScores(experts=names, domains=rows, seconds=time.perf_counter() - started)
