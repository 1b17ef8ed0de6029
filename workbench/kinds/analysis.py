"""Kinds of job that measure: scores, overlap, tasks, certificates and the engine's laws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from engine.config import MOST_SEED, MOST_TOKENS, PAPER_BLOCKS, PAPER_NEWEST_WEIGHT, Evidence, Normalise, TaskRouting
from engine.text.split_names import HeldOutSplit
from workbench.formatting.number_format import listed, pluralize
from workbench.kinds.kind import CHAT_LINK, Kind, Result, ResultLink, expert_link, named, no_path, nothing
from workbench.specs.base import GPU_SHARE, ExpertName, LocalPath, Name, Spec

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

BlockSize = Annotated[
    int | None,
    Field(
        ge=8,
        le=MOST_TOKENS,
        description="Max tokens of context; empty: as in its stored scores, or as in its training.",
    ),
]
MaxTokens = Annotated[
    int | None, Field(ge=100, description="Max tokens per domain; empty: as in its stored scores, or 20,000.")
]


class Evaluate(Spec):
    """Score experts on held-out text and store every token's log-likelihood."""

    kind: Literal["evaluate"] = "evaluate"
    mixture: Name = Field(description="Mixture whose experts are scored.")
    experts: list[ExpertName] = Field(default_factory=list, description="Further experts on its base to score.")
    domains: list[Name] = Field(default_factory=list, description="Domains to score on; empty takes all.")
    split: HeldOutSplit = Field("test", description="Held-out split.")
    block_size: BlockSize = None
    max_tokens: MaxTokens = None
    again: bool = Field(
        False, description="Compute existing scores again, such as those without the number of correct tokens."
    )
    calibrate: bool = Field(
        False,
        description="With dev scores: fit the evidence of the mixture's posterior on them, and save it if it gains.",
    )
    gpu_share: float = Field(1.0, gt=0, le=1, title="Share of a GPU", description=GPU_SHARE)

    @model_validator(mode="after")
    def _calibrates_on_dev(self) -> Evaluate:
        if self.calibrate and self.split != "dev":
            raise ValueError("a mixture is calibrated on dev text: choose the split dev")
        return self


def _scores_sentence(result: Result) -> str:
    """The stored sentence; of results from before there was one, how many scores were made."""
    made = f"{pluralize(result['scored'], 'pair')} of expert and domain scored."
    return str(result.get("sentence") or f"{made} {result.get('calibration', '')}".strip())


def _advice(session: Session, spec: Evaluate) -> list[str]:
    """That less text would be scored than is already: its numbers are not the ones that are shown."""
    from sqlalchemy import func, select  # here, since a spec is read without the registry

    from workbench.schema.names import find_row
    from workbench.schema.tables import Domain, Evaluation, Mixture

    mixture = find_row(session, Mixture, spec.mixture)
    if mixture is None or spec.max_tokens is None:
        return []
    longest = select(Domain.name, func.max(Evaluation.num_tokens)).join(Evaluation, Evaluation.domain_id == Domain.id)
    more = longest.where(
        Evaluation.expert_id.in_([member.expert_id for member in mixture.members]),
        Evaluation.split == spec.split,
        Evaluation.num_tokens > spec.max_tokens,
    )
    if spec.domains:
        more = more.where(Domain.name.in_(spec.domains))
    stored = dict(session.execute(more.group_by(Domain.name).order_by(Domain.name)).tuples().all())
    if not stored:
        return []
    return [
        f"{spec.max_tokens:,} tokens are less text than is scored already: {max(stored.values()):,} on "
        f"{listed(list(stored), 3)}. The scores of more text stay the ones that are shown. Leave Max tokens "
        "(--max-tokens) empty to score as much."
    ]


EVALUATE = Kind(
    spec=Evaluate,
    title="Evaluate",
    first_step="evaluations",
    creates=nothing,
    requires=lambda spec: [
        ("mixture", spec.mixture),
        *named("expert", *spec.experts),
        *named("domain", *spec.domains),
    ],
    reads=no_path,
    advice=_advice,
    empty_means_all_domains=True,
    uses_gpu=True,
    command="evaluate run MIXTURE",
    sentence=_scores_sentence,
    link=ResultLink(
        "specialization", "See the specialization", lambda result: {"specialization.mixture": result["mixture"]}
    ),
)


class Classify(Spec):
    """Classify texts from a few demonstrations with each routing method (C-BTM §5 and A.7)."""

    kind: Literal["classify"] = "classify"
    mixture: Name = Field(description="Mixture whose experts answer.")
    path: LocalPath = Field(
        min_length=1,
        title="Folder of the tasks",
        description="Folder with a subfolder per task: train.jsonl, test.jsonl and optionally validation.jsonl, with "
        "the fields text and label; task.json may hold a template and words for the labels.",
    )
    experts: list[ExpertName] = Field(
        default_factory=list,
        description="Further experts with the same tokenizer to compare with, such as the dense baseline.",
    )
    routings: list[TaskRouting] = Field(
        default_factory=list,
        description="cluster, updating, fixed, fixed-validation; empty takes all that the mixture supports.",
    )
    top_k: list[Annotated[int, Field(ge=1)]] = Field(
        default=[1, 4],
        title="Experts at each token (top k)",
        description="Numbers of experts to keep; all experts together are always measured too.",
    )
    num_shots: int = Field(
        8,
        ge=1,
        le=100,
        title="Demonstrations before each example",
        description="Demonstrations before each example (paper: 8).",
    )
    num_validation: int = Field(
        8,
        ge=1,
        title="Validation examples behind a fixed routing",
        description="Validation examples for a fixed routing (paper: 8).",
    )
    num_seeds: int = Field(5, ge=1, le=100, description="Seeds; each draws its own demonstrations (paper: 5).")
    max_examples: int = Field(
        1000, ge=1, title="Test examples of each task at most", description="Max test examples per task."
    )
    normalise: Normalise = Field(
        "none",
        description="Compare log-likelihoods of label words unnormalised (none, paper) or per token (tokens).",
    )
    newest_weight: float = Field(
        PAPER_NEWEST_WEIGHT,
        gt=0,
        le=1,
        description="Updating: share of the newest example in the weights (not given in the paper).",
    )


CLASSIFY = Kind(
    spec=Classify,
    title="Classify few-shot by",
    creates=nothing,
    requires=lambda spec: [("mixture", spec.mixture), *named("expert", *spec.experts)],
    reads=lambda spec: spec.path,
    uses_gpu=True,
    command="evaluate classify MIXTURE PATH",
    link=ResultLink("reports", "See the report", lambda result: {"reports.chosen": result["report"]}),
)


class MeasureOverlap(Spec):
    """Measure the share of frequent bigrams that every two domains have in common (DEMix §4.4)."""

    kind: Literal["measure-overlap"] = "measure-overlap"
    domains: list[Name] = Field(default_factory=list, description="Domains to compare, at least two; empty takes all.")

    @field_validator("domains")
    @classmethod
    def _several(cls, names: list[str]) -> list[str]:
        if names and len(set(names)) < max(2, len(names)):
            raise ValueError("name at least two domains, each once")
        return names


MEASURE_OVERLAP = Kind(
    spec=MeasureOverlap,
    title="Measure overlap",
    creates=nothing,
    requires=lambda spec: named("domain", *spec.domains),
    reads=no_path,
    empty_means_all_domains=True,
    command="evaluate overlap",
    sentence=lambda result: f"The overlap of every pair of {pluralize(len(result['domains']), 'domain')} is measured.",
    link=ResultLink("specialization", "See what it explains", lambda _: {"specialization.view": "Overlap"}),
)


class CertifyAddition(Spec):
    """Certify an addition: existing files are unchanged, and what each domain gained or lost (DEMix §6)."""

    kind: Literal["certify-addition"] = "certify-addition"
    expert: ExpertName = Field(description="Expert that was added.")
    mixture: Name = Field(description="Mixture that holds it.")
    split: HeldOutSplit = Field("test", description="Held-out split.")
    block_size: BlockSize = None
    max_tokens: MaxTokens = None


CERTIFY_ADDITION = Kind(
    spec=CertifyAddition,
    title="Certify addition",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert), ("mixture", spec.mixture)],
    reads=no_path,
    uses_gpu=True,
    command="expert certify EXPERT",
    link=expert_link("See the certificate", CHAT_LINK),
)


class CertifyRemoval(Spec):
    """Certify a removal: a mixture with and without an expert, and what text can still be extracted (DEMix §7)."""

    kind: Literal["certify-removal"] = "certify-removal"
    expert: ExpertName = Field(description="Expert whose removal is certified; it is not deleted.")
    mixture: Name = Field(description="Mixture that holds it.")
    retrained: Name | None = Field(
        None, description="Mixture that was trained without its domain, to compare with (the paper's –Domain)."
    )
    split: HeldOutSplit = Field("test", description="Held-out split; priors always use dev.")
    block_size: int = Field(256, ge=8, le=MOST_TOKENS, description="Max tokens of context.")
    max_tokens: int = Field(20_000, ge=100, description="Max tokens per domain.")
    num_blocks: int = Field(
        PAPER_BLOCKS,
        ge=1,
        title="Blocks for each cached prior",
        description="Number of dev blocks for each cached prior (paper: 100).",
    )
    evidence: Evidence = Field(
        "prefix",
        title="Evidence: what the posterior sees",
        description="What the posterior sees: prefix (paper) or last_token (code).",
    )
    num_prefixes: int = Field(50, ge=10, le=10_000, description="Pieces of training text to continue.")
    prefix_length: int = Field(32, ge=1, le=MOST_TOKENS, description="Tokens of each piece given as the prompt.")
    continuation_length: int = Field(32, ge=1, le=MOST_TOKENS, description="Tokens of each piece to predict.")
    temperature: float = Field(0.0, ge=0, le=1e6, description="Sampling temperature; 0 takes the most probable token.")
    seed: int = Field(0, ge=0, le=MOST_SEED, description="Seed of the pieces and of sampling.")


CERTIFY_REMOVAL = Kind(
    spec=CertifyRemoval,
    title="Certify removal",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert), *named("mixture", spec.mixture, spec.retrained)],
    reads=no_path,
    uses_gpu=True,
    command="expert certify-removal EXPERT",
    link=expert_link("See the certificate"),
)


class SelfCheck(Spec):
    """Check the engine's laws on a tiny model, with the worker's machine and library versions."""

    kind: Literal["selfcheck"] = "selfcheck"


def summary(findings: Result) -> str:
    """Whether all laws hold, or which do not."""
    total, failed = len(findings["laws"]), findings["failed"]
    if not failed:
        return f"All {total} laws hold on this machine."
    verb = "does" if len(failed) == 1 else "do"
    return f"{len(failed)} of {total} laws {verb} not hold on this machine: {listed(failed)}."


SELFCHECK = Kind(
    spec=SelfCheck,
    title="Self-check",
    creates=nothing,
    requires=nothing,
    reads=no_path,
    uses_gpu=True,
    command="selfcheck",
    sentence=summary,
    link=ResultLink("selfcheck", "See the laws"),
)


KIND = (EVALUATE, CLASSIFY, MEASURE_OVERLAP, CERTIFY_ADDITION, CERTIFY_REMOVAL, SELFCHECK)
