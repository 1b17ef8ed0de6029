"""The parent proposed before a training (DEMix §6): the expert with the highest posterior on the new domain's text."""

from __future__ import annotations

from pydantic import Field
from sqlalchemy.orm import Session

from engine.config import PAPER_BLOCKS, adapting_rate
from engine.errors import ScoresError
from engine.methods.registry import method_of
from engine.text.split_names import HeldOutSplit
from workbench.analysis.scores import (
    describe_unscored,
    load_counted,
    load_scores,
    most_shared_scores,
    shared_scores,
)
from workbench.answers.base import Answer
from workbench.formatting.shell_command import evaluate_command
from workbench.questions.question import Question, Split
from workbench.registry.corpora import domain_row
from workbench.registry.experts import first_of_line
from workbench.registry.mixtures import mixture_row
from workbench.schema.tables import Expert, Mixture
from workbench.store.storage import Storage


def unscored_parents(session: Session, mixture: str, domain: str) -> tuple[list[str], int]:
    """The possible parents that `nearest_parent` lacks a score of, and how many are scored on one text."""
    possible = _possible(mixture_row(session, mixture))
    domain_id = domain_row(session, domain).id
    scored = shared_scores(session, possible, domain_id, "dev", num_blocks=1)
    scored = scored or most_shared_scores(session, possible, domain_id, "dev", num_blocks=1)
    return [one.name for one in possible if one.id not in scored], len(scored)


class ParentProposal(Answer):
    """The expert whose copy should learn a new domain."""

    mixture: str
    domain: str
    parent: str
    posterior: dict[str, float] = Field(description="By expert, the mean at the ends of the blocks.")
    perplexity: dict[str, float] = Field(description="By expert, over the tokens of the same blocks.")
    num_blocks: int
    block_size: int
    split: HeldOutSplit
    learning_rate: float | None = Field(
        description="The default of a training: a tenth of what the parent was first trained with; None if unknown."
    )

    @property
    def of_lowest_perplexity(self) -> str:
        """The expert that predicts the text best as a whole; the posterior may choose another."""
        return min(self.perplexity, key=self.perplexity.__getitem__)


class NearestRequest(Question[ParentProposal]):
    """The expert whose copy should learn a new domain, with the posterior of every expert, from stored scores."""

    path = "nearest"
    operation = "nearest_parent"

    mixture: str = Field(description="Name of a mixture: its experts are the possible parents.")
    domain: str = Field(description="Domain that a new expert is to learn.")
    num_blocks: int = Field(PAPER_BLOCKS, ge=1, description="Maximum number of scored blocks (paper: 100).")
    split: Split = "dev"

    def answer(self, session: Session, storage: Storage) -> ParentProposal:
        """The parent that a training would choose, with the posterior of every possible one of the mixture.

        The posterior is the mean at the ends of `num_blocks` scored blocks, evenly spread, from equal shares in each.
        Raises ScoresError when an expert is not scored.
        """
        from engine.inference.scores import full_blocks, perplexity
        from engine.mixing.posterior import PosteriorGate, estimate_prior
        from engine.text.blocks import evenly_spaced

        row = mixture_row(session, self.mixture)
        experts = _possible(row)
        if not experts:
            methods = " and ".join(sorted({method_of(member.expert.method).title for member in row.members}))
            raise ScoresError(
                f"“{self.mixture}” has no expert whose copy can be trained: experts of {methods} cannot be copied.",
                "Train an expert of its own next to the backbone: workbench train mode.",
            )
        domain_id = domain_row(session, self.domain).id
        scores = shared_scores(session, experts, domain_id, self.split, num_blocks=1)
        if scores is None:
            names = {expert.id: expert.name for expert in experts}
            raise ScoresError(
                f"The {self.split} text of “{self.domain}” is not scored under every expert of “{self.mixture}”, so no "
                f"parent can be proposed.{describe_unscored(session, names, [self.domain], self.split)}",
                f"Score it: {score_line(self.mixture, self.domain, self.split)}. Or train without a parent: the job "
                "scores the text.",
            )
        scores_EX, block_size = load_scores(storage, [scores[expert.id] for expert in experts])
        blocks_ENT = full_blocks(scores_EX, block_size)
        chosen = evenly_spaced(blocks_ENT.shape[1], self.num_blocks)
        blocks_ENT = blocks_ENT[:, chosen]
        counted_X = load_counted(storage, scores[experts[0].id])
        counted_NT = None if counted_X is None else full_blocks(counted_X[None], block_size)[0, chosen]
        shares = estimate_prior(PosteriorGate([1.0] * len(experts)), blocks_ENT, blocks_ENT.shape[1]).tolist()
        parent = experts[shares.index(max(shares))]
        first_rate = first_of_line(parent).config.get("learning_rate")
        return ParentProposal.from_fields(
            self,
            parent=parent.name,
            posterior=dict(zip([expert.name for expert in experts], shares, strict=True)),
            perplexity={
                expert.name: perplexity(of_one_NT, counted_NT)
                for expert, of_one_NT in zip(experts, blocks_ENT, strict=True)
            },
            num_blocks=blocks_ENT.shape[1],
            block_size=blocks_ENT.shape[2],
            learning_rate=None if first_rate is None else adapting_rate(first_rate),
        )


QUESTION = NearestRequest


def _possible(row: Mixture) -> list[Expert]:
    return [member.expert for member in row.members if method_of(member.expert.method).can_be_copied]


def score_line(mixture: str, domain: str, split: HeldOutSplit = "dev") -> str:
    """The command that scores what a proposal needs."""
    return evaluate_command(mixture, split, "--domains", domain)
