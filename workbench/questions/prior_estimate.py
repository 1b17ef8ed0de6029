"""A cached prior: the mean posterior on scored held-out blocks of a domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field
from sqlalchemy.orm import Session

from engine.config import PAPER_BLOCKS
from engine.errors import ScoresError
from engine.mixing.evidence import AnyEvidence
from workbench.analysis.scores import load_scores, scored_domains
from workbench.answers.posteriors import EstimatedPrior, PriorSource
from workbench.formatting.shell_command import evaluate_command
from workbench.questions.question import Evidence, MixtureName, Question, Split
from workbench.requests.planning import plan
from workbench.schema.tables import Evaluation
from workbench.store.storage import Storage

if TYPE_CHECKING:
    from torch import Tensor


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
                f"The {self.split} text of “{self.domain}” is not scored under every expert of “{self.mixture}”.",
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
