"""Posteriors of experts on each domain from stored scores, block by block (DEMix §5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.config import PAPER_BLOCKS, PAPER_NEWEST_WEIGHT
from engine.errors import ScoresError
from engine.mixing.evidence import AnyEvidence
from engine.text.split_names import HeldOutSplit
from workbench.analysis.scores import describe_unscored, load_scores, most_scored, scored_domains
from workbench.answers.base import Answer
from workbench.answers.posteriors import EstimatedPrior, PriorSource
from workbench.formatting.shell_command import evaluate_command
from workbench.questions.question import Evidence, LeftOut, MixtureName, NewestWeight, Question, Split
from workbench.registry.experts import domains_of, expert_with_id
from workbench.requests.planning import plan
from workbench.schema.tables import Domain, Evaluation, Expert
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from torch import Tensor


Estimate = Literal["updating", "mean"]


class DomainPosterior(Answer):
    """The posterior of each expert after some blocks of a domain, with its trajectory."""

    domain: str
    role: str
    is_trained: bool = Field(description="Whether the domain trained an expert that takes part.")
    num_blocks: int
    block_size: int
    posterior: list[float] = Field(description="By expert.")
    trajectory: list[list[float]] = Field(description="Expert × blocks seen, from 0.")
    stable_after: int | None = Field(
        description="Blocks after which no share is more than 0.05 from its last value; None if in the last tenth."
    )


class PosteriorMap(Answer):
    """The posterior of each expert on every scored domain."""

    experts: list[str]
    without: LeftOut = Field([])
    homes: list[str] = Field(description="The domain of each expert; empty if trained on several.")
    split: HeldOutSplit
    evidence: AnyEvidence
    estimate: str
    num_blocks: int = Field(description="Blocks of each domain at most.")
    newest_weight: float
    domains: list[DomainPosterior]
    too_short: list[str] = Field(description="Domains without one block.")


class PosteriorMapRequest(Question[PosteriorMap]):
    """Which expert each domain's text is taken for, and the way there block by block, from stored scores."""

    path = "posteriors"
    operation = "posterior_map"
    rows = "domains"

    mixture: MixtureName
    evidence: Evidence = "prefix"
    newest_weight: NewestWeight = PAPER_NEWEST_WEIGHT
    estimate: Estimate = Field(
        "updating", description="updating: the learnt prior (paper, figure 4); mean: the mean of the blocks."
    )
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Maximum number of blocks of each domain (paper: 100).")
    split: Split = "dev"

    def answer(self, session: Session, storage: Storage) -> PosteriorMap:
        """The posterior of each active expert after the first `num_blocks` full blocks of every scored domain.

        `estimate="updating"` is figure 4 of the paper: the prior that the updating method has learnt by then, which
        the newest blocks rule; `"mean"` is the mean end-of-block posterior, as in a cached prior. Both start from
        equal shares. Trajectories are those of figures 7 and 8. A domain with less text has fewer blocks.
        """
        from engine.analysis.inference_modes import stable_after
        from engine.inference.scores import full_blocks

        planned, texts, without = most_scored(session, plan(session, storage, self.mixture), self.split)
        roles = dict(session.execute(select(Domain.name, Domain.role)).tuples().all())
        trained = {name for expert in planned.experts for name in domains_of(expert_with_id(session, expert.id))}
        homes = dict(session.execute(select(Expert.id, Domain.name).join(Expert.domain)).tuples().all())
        rows, too_short = [], []
        for text in texts:
            domain = text.domain
            scores_EX, block_size = load_scores(storage, text.evaluations)
            blocks_ENT = full_blocks(scores_EX, block_size)[:, : self.num_blocks]
            if not blocks_ENT.shape[1]:
                too_short.append(domain)
                continue
            path_EN = _path(blocks_ENT, self.evidence, self.newest_weight, self.estimate)
            rows.append(
                DomainPosterior(
                    domain=domain,
                    role=roles[domain],
                    is_trained=domain in trained,
                    num_blocks=blocks_ENT.shape[1],
                    block_size=block_size,
                    posterior=path_EN[:, -1].tolist(),
                    trajectory=path_EN.tolist(),
                    stable_after=stable_after(path_EN),
                )
            )
        return PosteriorMap.from_fields(
            self,
            experts=[expert.name for expert in planned.experts],
            without=without,
            homes=[homes.get(expert.id, "") for expert in planned.experts],
            domains=rows,
            too_short=too_short,
        )


QUESTION = PosteriorMapRequest


def _path(blocks_ENT: Tensor, evidence: AnyEvidence, newest_weight: float, estimate: Estimate) -> Tensor:
    """The posteriors [E, N+1] before each block and after the last."""
    from engine.analysis.inference_modes import running_mean, trajectory
    from engine.mixing.posterior import PosteriorGate, UpdatingGate

    num_experts, _, block_size = blocks_ENT.shape
    equal = [1.0] * num_experts
    if estimate == "mean":
        return running_mean(PosteriorGate(equal, evidence), blocks_ENT)
    gate = UpdatingGate(equal, evidence, newest_weight=newest_weight, update_every=block_size)
    return trajectory(gate, blocks_ENT)


class PriorRequest(Question[EstimatedPrior]):
    """A new prior: the mean posterior on exactly so many blocks of a domain's held-out text, from stored scores.

    It has a route of its own, which stores the answer.
    """

    path = "priors"
    operation = "estimate_prior"

    name: str = Field(description="Name of the new prior.")
    mixture: MixtureName
    domain: str = Field(description="Domain whose scored held-out text it is estimated on.")
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Exactly so many blocks (paper: 100).")
    evidence: Evidence = "prefix"
    split: Split = "dev"

    def answer(self, session: Session, storage: Storage) -> EstimatedPrior:
        """Each expert's share.

        Raises ScoresError when the domain was not scored under all experts, MixtureError when there are fewer blocks.
        """
        planned = plan(session, storage, self.mixture)
        evaluations = scored_domains(session, planned, self.split).get(self.domain)
        if evaluations is None:
            raise ScoresError(
                f"The {self.split} text of “{self.domain}” is not scored under every expert of “{self.mixture}”."
                f"{describe_unscored(session, planned.names, [self.domain], self.split)}",
                f"Score it: {evaluate_command(self.mixture, self.split)}.",
            )
        prior_E = _estimate(storage, evaluations, self.num_blocks, self.evidence)
        shares = dict(zip([expert.id for expert in planned.experts], prior_E.tolist(), strict=True))
        source = PriorSource.from_fields(self, block_size=evaluations[0].block_size)
        return EstimatedPrior(shares=shares, source=source)


def estimate_cached_prior(
    storage: Storage, evaluations: Sequence[Evaluation], num_blocks: int, evidence: AnyEvidence
) -> Tensor | None:
    """The prior of exactly so many blocks; None where fewer are scored."""
    if not evaluations or evaluations[0].num_tokens < num_blocks * evaluations[0].block_size:
        return None
    return _estimate(storage, evaluations, num_blocks, evidence)


def _estimate(storage: Storage, evaluations: Sequence[Evaluation], num_blocks: int, evidence: AnyEvidence) -> Tensor:
    from engine.inference.scores import full_blocks
    from engine.mixing.posterior import PosteriorGate, estimate_prior

    gate = PosteriorGate([1.0] * len(evaluations), evidence)
    return estimate_prior(gate, full_blocks(*load_scores(storage, evaluations)), num_blocks)
