"""Every domain's perplexity under each of the paper's inference modes (tables 3 and 5), from stored scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal, get_args

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.config import PAPER_BLOCKS, PAPER_NEWEST_WEIGHT
from workbench.analysis.scores import (
    load_counted,
    load_scores,
    mixed_perplexity,
    most_scored,
    scored_domains,
    without_distances,
)
from workbench.answers.base import Answer
from workbench.questions.posteriors import estimate_cached_prior
from workbench.questions.question import Evidence, LeftOut, MixtureName, NewestWeight, Question, Split, Unrouted
from workbench.registry.experts import domains_of, expert_with_id
from workbench.requests.planning import plan
from workbench.schema.tables import Domain, Expert
from workbench.store.storage import Storage

InferenceMode = Literal["naive", "label", "average", "uniform", "updating", "cached", "mixture", "oracle"]
INFERENCE_MODES: tuple[InferenceMode, ...] = get_args(InferenceMode)


class InferenceModePerplexities(Answer):
    """Perplexities under each inference mode, under the saved gate (`mixture`), and of the oracle.

    The oracle is the best expert of each block in hindsight; log(mixture / oracle) is the oracle gap in nats per token.
    """

    naive: float
    label: float | None = Field(description="None without an expert of the domain's own.")
    average: float
    uniform: float
    updating: float
    cached: float | None = Field(description="None where too few dev blocks are scored.")
    oracle: float
    mixture: float

    def by_mode(self) -> dict[InferenceMode, float | None]:
        """The perplexity under each inference mode."""
        return {mode: getattr(self, mode) for mode in INFERENCE_MODES}


class InferenceModeDomain(InferenceModePerplexities):
    """One domain under each inference mode."""

    domain: str
    role: str
    is_trained: bool = Field(description="Whether the domain trained an expert that takes part.")
    num_tokens: int


class InferenceModeAverages(Answer):
    """Mean perplexities over the domains that trained an expert (`train`) and over the others (`novel`).

    None where a domain has no number: means of other domains must not be compared. Empty without a domain.
    """

    train: dict[InferenceMode, float | None]
    novel: dict[InferenceMode, float | None]


class InferenceModeComparison(Answer):
    """Every domain's perplexity under each inference mode."""

    experts: list[str]
    without: LeftOut = Field([])
    unrouted: Unrouted = Field([])
    domains: list[InferenceModeDomain]
    averages: InferenceModeAverages


class InferenceModesRequest(Question[InferenceModeComparison]):
    """Every domain's perplexity under each of the paper's inference modes, from stored scores."""

    path = "inference-modes"
    operation = "compare_modes"
    rows = "domains"

    mixture: MixtureName
    evidence: Evidence = "prefix"
    newest_weight: NewestWeight = PAPER_NEWEST_WEIGHT
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Held-out blocks behind a cached prior (paper: 100).")
    split: Split = "test"

    def answer(self, session: Session, storage: Storage) -> InferenceModeComparison:
        """The cached prior of a domain is estimated on `num_blocks` blocks of its dev split."""
        from engine.analysis.inference_modes import compare_inference_modes as compare

        saved = plan(session, storage, self.mixture)
        planned, texts, without = most_scored(session, saved, self.split)
        homes = dict(session.execute(select(Expert.id, Domain.name).join(Expert.domain)).tuples().all())
        owners = [homes.get(expert.id) for expert in planned.experts]
        roles = dict(session.execute(select(Domain.name, Domain.role)).tuples().all())
        trained = {name for expert in planned.experts for name in domains_of(expert_with_id(session, expert.id))}
        held_out = scored_domains(session, planned, "dev")
        rows = []
        for text in texts:
            domain, evaluations = text.domain, text.evaluations
            prior_E = estimate_cached_prior(storage, held_out.get(domain, ()), self.num_blocks, self.evidence)
            scores_EX, block_size = load_scores(storage, evaluations)
            own = owners.index(domain) if domain in owners else None
            modes = compare(
                scores_EX,
                block_size,
                own_row=own,
                cached_prior_E=prior_E,
                evidence=self.evidence,
                newest_weight=self.newest_weight,
                counted_X=load_counted(storage, evaluations[0]),
            )
            rows.append(
                InferenceModeDomain(
                    domain=domain,
                    role=roles[domain],
                    is_trained=domain in trained,
                    num_tokens=evaluations[0].num_tokens,
                    **asdict(modes),
                    mixture=mixed_perplexity(session, storage, planned, evaluations),
                )
            )
        averages = InferenceModeAverages(
            train=_averages([row for row in rows if row.is_trained]),
            novel=_averages([row for row in rows if not row.is_trained]),
        )
        return InferenceModeComparison(
            experts=[expert.name for expert in planned.experts],
            without=without,
            unrouted=without_distances(session, saved, self.split),
            domains=rows,
            averages=averages,
        )


QUESTION = InferenceModesRequest


def _averages(rows: Sequence[InferenceModeDomain]) -> dict[InferenceMode, float | None]:
    """The mean of each perplexity; None where one is missing, and {} for no rows."""
    if not rows:
        return {}
    means: dict[InferenceMode, float | None] = {}
    for mode in INFERENCE_MODES:
        known = [value for row in rows if (value := row.by_mode()[mode]) is not None]
        means[mode] = sum(known) / len(known) if len(known) == len(rows) else None
    return means
