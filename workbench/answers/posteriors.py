"""Answers about posteriors: the weights of experts on a text or a domain, and where two experts differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from importlib.metadata import version

from pydantic import Field

from engine.config import SamplingConfig, ServePrecision
from engine.events import Drafting, GateWeights
from engine.loading.plan import GenerationPlan
from engine.mixing.evidence import AnyEvidence
from engine.text.split_names import HeldOutSplit
from workbench.answers.base import Answer, JsonObject
from workbench.gate_configs import dump_gate

Weights = list[list[float]]  # token × expert


class ManifestExpert(Answer):
    """An expert that takes part: its files and its weight."""

    id: str
    name: str
    sha256: str
    weight: float
    base_sha256: str
    parts: list[str] | None = Field(description="Active parts of an expert of MoDE; None of any other.")


class Manifest(Answer):
    """Which files, experts and weights make an answer."""

    model: str
    experts: list[ManifestExpert]
    tokenizer_sha256: str
    gate: JsonObject
    clustering_sha256: str | None
    sampling: JsonObject | None = Field(
        None, description="How tokens were drawn, with the seed of the first answer; null of a text that was only read."
    )
    n: int = Field(1, description="Answers to each prompt; their seeds count up from the one of the sampling.")
    versions: dict[str, str] = Field(default_factory=dict, description="Of the packages that computed it.")
    precision: ServePrecision = Field(
        "stored",
        description="What the weights were held in: as they are stored, bf16 in place of float32, or float32 in place "
        "of 16 bits.",
    )
    evidence_from: int = Field(
        0, description="Token of the prompt where evidence begins: in a conversation the first user's first words."
    )
    speculation: str | None = Field(
        None,
        description="What came of `speculate`: how many drafts were right, or why nothing was drafted. Null where it "
        "was not asked for.",
    )
    num_drafted: int | None = Field(
        None, description="Drafted tokens of its answers that were judged; 0 where they were decoded plainly."
    )

    @classmethod
    def of(cls, plan: GenerationPlan, sampling: SamplingConfig | None = None) -> Manifest:
        """That of a plan and of how tokens are drawn; `sampling` is None where nothing is sampled."""
        experts = [
            ManifestExpert(
                id=expert.id,
                name=expert.name,
                sha256=expert.sha256,
                weight=expert.weight,
                base_sha256=expert.base.sha256,
                parts=None if expert.parts is None else list(expert.parts),
            )
            for expert in plan.experts
        ]
        return cls(
            model=plan.model,
            experts=experts,
            tokenizer_sha256=plan.tokenizer_sha256,
            gate=dump_gate(plan.gate),
            clustering_sha256=plan.route.clustering.sha256 if plan.route else None,
            sampling=None if sampling is None else asdict(sampling),
            versions=_versions(),
            precision=plan.precision,
            evidence_from=plan.evidence_from,
        )

    def after(self, draftings: Iterable[Drafting | None]) -> Manifest:
        """The same, with what came of the drafts of its answers."""
        known = [one for one in draftings if one is not None]
        if not known:
            return self
        num_judged, num_accepted = sum(one.num_judged for one in known), sum(one.num_accepted for one in known)
        sentence = f"{num_accepted} of {num_judged} drafted tokens were the mixture's own"
        if not num_judged:
            sentence = f"Nothing was drafted: {known[0].why_not}"
        return self.model_copy(update={"speculation": f"{sentence}.", "num_drafted": num_judged})


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("expert-workbench", "torch", "transformers", "tokenizers")}


class PosteriorAnswer(Answer):
    """A text by token: the weight of every expert before it, the mixture's log-probability, and the files behind it."""

    experts: list[str]
    tokens: list[str]
    weights: Weights
    logprobs: list[float] = Field(description="Log-probability of each token under the mixture (nats).")
    best: list[tuple[str, float]] = Field(description="The most probable token in each place, with its own.")
    gate_weights: list[dict[str, GateWeights]] = Field(
        description="By token, the weights inside experts of MoDE; an expert that did not run is left out."
    )
    manifest: Manifest


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
    homes: list[str] = Field(description="The domain of each expert; empty if trained on several.")
    split: HeldOutSplit
    evidence: AnyEvidence
    estimate: str
    num_blocks: int = Field(description="Blocks of each domain at most.")
    newest_weight: float
    domains: list[DomainPosterior]
    too_short: list[str] = Field(description="Domains without one block.")


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


class Passage(Answer):
    """A block of text that was scored by itself."""

    document: int = Field(description="Number of the document that it begins in, from 0.")
    mean: float = Field(description="Mean difference over all tokens (nats).")
    num_tokens: int
    tokens: list[str]
    differences: list[float] = Field(description="log p(expert) − log p(rival) of each token shown (nats).")


class TokenComparison(Answer):
    """The passages of a domain on which an expert does worst and best against a rival."""

    domain: str
    expert: str
    rival: str
    split: HeldOutSplit
    num_passages: int
    num_documents: int
    overall: float = Field(description="Mean difference over all tokens (nats).")
    worst: list[Passage]
    best: list[Passage]


class PriorSource(Answer):
    """The text that a prior was estimated on."""

    mixture: str
    domain: str
    split: HeldOutSplit
    num_blocks: int
    block_size: int
    evidence: AnyEvidence


class EstimatedPrior(Answer):
    """The share of each expert (by id), and the text behind it."""

    shares: dict[str, float]
    source: PriorSource
