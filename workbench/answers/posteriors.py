"""Answers about texts: the weights of experts on them, the files behind an answer, documents and calibrations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version

from pydantic import BaseModel, Field

from engine.config import SamplingConfig, ServeEngine, ServePrecision
from engine.events import Drafting, GateWeights
from engine.loading.plan import GenerationPlan
from engine.mixing.evidence import AnyEvidence, EvidenceRule
from engine.text.split_names import HeldOutSplit, Split
from workbench.answers.base import Answer, JsonObject
from workbench.specs.gates import dump_gate
from workbench.specs.requests import MixtureRequest

Weights = list[list[float]]  # token × expert


class ManifestExpert(Answer):
    """An expert that takes part: its files and its weight."""

    id: str
    name: str
    sha256: str
    weight: float
    base_sha256: str
    parts: list[str] | None = Field(description="Active parts of an expert that has some; None of any other.")


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
    engine: ServeEngine = Field(
        "own",
        description="What computed it: own, this server; vllm, a vLLM server; or vllm-route, one expert of the mixture "
        "on a vLLM server, chosen by the prompt. A prompt of one token is always answered by this server.",
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
            ManifestExpert.from_fields(
                expert,
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
            engine=plan.engine,
            evidence_from=plan.evidence_from,
        )

    def after(self, draftings: Iterable[Drafting | None]) -> Manifest:
        """The same, with what came of the drafts of its answers."""
        known = [drafting for drafting in draftings if drafting is not None]
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
        description="By token, the weights inside experts with parts; an expert that did not run is left out."
    )
    manifest: Manifest


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


class Document(Answer):
    """A document of a domain."""

    id: str
    text: str
    source: str | None
    group: str | None


class ClusteredDocument(Answer):
    """A document of a clustering."""

    id: str
    text: str
    source: str
    domain: str
    split: Split
    cluster: int = Field(description="Number of its cluster.")
    is_fitted: bool
    is_pinned: bool
    is_blank: bool


class TextChanges(Answer):
    """How text differs from what was clustered; of long lists the first ids."""

    num_missing: int
    num_new: int
    missing: list[str]
    new: list[str]


class Change(Answer):
    """A change of perplexity in % on these domains' text, with its interval of 95 % if any. Below 0 is a gain."""

    value: float
    low: float | None
    high: float | None


class EvidenceCalibration(Answer):
    """The setting that fits dev text of a mixture's training domains best, and the present setting."""

    mixture: str
    experts: list[str]
    domains: list[str] = Field(description="The training domains whose dev text it was fitted on.")
    missing: list[str] = Field(description="Training domains whose dev text is not scored under every expert.")
    now: EvidenceRule
    best: EvidenceRule
    keeps: bool = Field(description="Whether the setting of now is kept: no gain, or one that may be chance.")
    decays: list[float]
    powers: list[float]
    change: list[list[float]] = Field(
        description="Change of perplexity in % against now, by decay (rows) and power (columns). "
        "The mean over domains, each with all experts and without its own."
    )
    gain: Change = Field(description="Of both; of each domain by the setting that is best on the others.")
    gain_present: Change = Field(description="With all experts, as on text of the training domains.")
    gain_left_out: Change | None = Field(
        description="Without the experts that a domain trained, as if it were novel; None with less than two others."
    )
    too_short: list[str] = Field(
        [], description="Domains whose dev text is a single block: changes have no interval, and nothing is proposed."
    )
    seconds: float


NUM_SEEDS = 2**64


class StoredChoice(BaseModel):
    """One text of a stored answer."""

    index: int
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class StoredAnswer(BaseModel):
    """A stored completion, or a stored answer in a conversation."""

    manifest: Manifest
    choices: list[StoredChoice]

    def request(self) -> MixtureRequest:
        """The request for the same experts, weights, parts and gate."""
        experts = self.manifest.experts
        return MixtureRequest(
            self.manifest.model,
            [expert.name for expert in experts],
            {expert.name: expert.weight for expert in experts},
            self.manifest.gate,
            parts={expert.name: expert.parts for expert in experts if expert.parts is not None},
        )

    def sampling(self, choice: StoredChoice) -> SamplingConfig:
        """How the tokens of a choice were drawn; no more of them than it has."""
        given = dict(self.manifest.sampling or {})
        given["logit_bias"] = {int(token): bias for token, bias in given.get("logit_bias", {}).items()}
        first = SamplingConfig(**given)
        seed = None if first.seed is None else (first.seed + choice.index % self.manifest.n) % NUM_SEEDS
        return replace(first, seed=seed, max_tokens=max(1, len(choice.token_ids or ())), num_candidates=0)
