"""What a person may ask for. A spec validates itself, is stored as JSON on its job, and is the only input of the work.

Every description here is shown as form help, in `--help` and in the API schema. Things are named by their names.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError, field_validator
from pydantic_core import ErrorDetails

from engine.config import MOST_SEED, MOST_TOKENS, Evidence, GateConfig
from workbench.classify_specs import Classify
from workbench.cluster_specs import (
    ClusterPart,
    FindClusters,
    MakeClusterDomains,
    MakeDomain,
    MergeClusters,
    PinDocuments,
    SplitCluster,
)
from workbench.corpus_specs import ImportCorpus
from workbench.errors import BadSpec
from workbench.mode_specs import ComposeMode, TrainMode
from workbench.plan_specs import TrainClusters as TrainClusters
from workbench.replication_specs import ReplicateCbtm, ReplicateDemix, ReplicateMode
from workbench.spec_base import ExpertName, Name
from workbench.spec_base import Spec as Spec
from workbench.training_specs import AverageExperts, CertifyAddition, MakeSeed, TrainDemix, TrainExpert


class Evaluate(Spec):
    """Score experts on held-out text and keep every token's log-likelihood."""

    kind: Literal["evaluate"] = "evaluate"
    mixture: Name = Field(description="Mixture whose experts are scored.")
    experts: list[ExpertName] = Field(default_factory=list, description="Experts on its base to score, too.")
    domains: list[Name] = Field(default_factory=list, description="Domains to score on; empty takes all.")
    split: Literal["dev", "test"] = Field("test", description="Which held-out part.")
    block_size: int | None = Field(
        None,
        ge=8,
        le=MOST_TOKENS,
        description="Tokens of context at most; empty: as in its stored scores, or as it was trained.",
    )
    max_tokens: int | None = Field(
        None, ge=100, description="Tokens per domain at most; empty: as in its stored scores, or 20,000."
    )
    again: bool = Field(
        False, description="Score what has scores already, too, such as those without the number of right tokens."
    )


class CertifyRemoval(Spec):
    """Certify a removal: what a mixture is without an expert, and what of its domain still comes out (DEMix §7)."""

    kind: Literal["certify-removal"] = "certify-removal"
    expert: ExpertName = Field(description="Expert whose removal is certified; it stays where it is.")
    mixture: Name = Field(description="Mixture that holds it.")
    retrained: Name | None = Field(
        None, description="Mixture that was trained without its domain, to compare with (the paper's –Domain)."
    )
    split: Literal["dev", "test"] = Field("test", description="Which held-out part; priors are always of dev.")
    block_size: int = Field(256, ge=8, le=MOST_TOKENS, description="Tokens of context at most.")
    max_tokens: int = Field(20_000, ge=100, description="Tokens per domain at most.")
    num_blocks: int = Field(100, ge=1, description="Dev blocks behind each cached prior, exactly (paper: 100).")
    evidence: Evidence = Field("prefix", description="What the posterior sees: prefix (paper) or last_token (code).")
    num_prefixes: int = Field(50, ge=10, le=10_000, description="Pieces of training text to go on from.")
    prefix_length: int = Field(32, ge=1, le=MOST_TOKENS, description="Tokens of each piece that are read.")
    continuation_length: int = Field(32, ge=1, le=MOST_TOKENS, description="Tokens of each piece to be guessed.")
    temperature: float = Field(
        0.0, ge=0, le=1e6, description="0 takes the most probable token; above, tokens are drawn."
    )
    seed: int = Field(0, ge=0, le=MOST_SEED, description="Seed of the pieces and of what is drawn.")


class MeasureOverlap(Spec):
    """Measure which share of their frequent bigrams every two domains have in common (DEMix §4.4)."""

    kind: Literal["overlap"] = "overlap"
    domains: list[Name] = Field(default_factory=list, description="Domains to compare, at least two; empty takes all.")

    @field_validator("domains")
    @classmethod
    def _several(cls, names: list[str]) -> list[str]:
        if names and len(set(names)) < max(2, len(names)):
            raise ValueError("name at least two domains, each once")
        return names


class MakeMixture(Spec):
    """Compose a mixture once the experts are there: the last step of a plan that trains them."""

    kind: Literal["make-mixture"] = "make-mixture"
    name: Name = Field(description="Name of the mixture.")
    experts: list[ExpertName] = Field(min_length=1, description="Experts that share a tokenizer.")
    weights: list[float] | None = Field(None, description="Prior (or fixed) weight of each expert; empty: equal.")
    gate: GateConfig = Field(default_factory=GateConfig, description="How weights come about.")
    clustering: Name | None = Field(
        None, description="Clustering by whose clusters the experts are weighed, by name, instead of a gate."
    )
    replace: bool = Field(False, description="Put these experts in the place of those of a mixture of this name.")


class SelfCheck(Spec):
    """Check the engine's laws on a tiny model, on the machine and with the versions of the worker."""

    kind: Literal["selfcheck"] = "selfcheck"


AnySpec = Annotated[
    ImportCorpus
    | MakeSeed
    | TrainDemix
    | TrainExpert
    | TrainMode
    | ComposeMode
    | AverageExperts
    | Evaluate
    | CertifyAddition
    | CertifyRemoval
    | MeasureOverlap
    | Classify
    | ReplicateDemix
    | ReplicateCbtm
    | ReplicateMode
    | FindClusters
    | ClusterPart
    | MergeClusters
    | SplitCluster
    | PinDocuments
    | MakeClusterDomains
    | MakeDomain
    | MakeMixture
    | SelfCheck,
    Field(discriminator="kind"),
]
SPECS: dict[str, type[Spec]] = {
    "import-corpus": ImportCorpus,
    "make-seed": MakeSeed,
    "train-demix": TrainDemix,
    "train-expert": TrainExpert,
    "train-mode": TrainMode,
    "compose-mode": ComposeMode,
    "average-experts": AverageExperts,
    "evaluate": Evaluate,
    "certify-addition": CertifyAddition,
    "certify-removal": CertifyRemoval,
    "overlap": MeasureOverlap,
    "classify": Classify,
    "replicate": ReplicateDemix,
    "replicate-cbtm": ReplicateCbtm,
    "replicate-mode": ReplicateMode,
    "find-clusters": FindClusters,
    "cluster-part": ClusterPart,
    "merge-clusters": MergeClusters,
    "split-cluster": SplitCluster,
    "pin-documents": PinDocuments,
    "make-cluster-domains": MakeClusterDomains,
    "make-domain": MakeDomain,
    "make-mixture": MakeMixture,
    "selfcheck": SelfCheck,
}
SpecType = TypeVar("SpecType", bound=Spec)
_adapter: TypeAdapter[Any] = TypeAdapter(AnySpec)


class MixtureSpec(Spec):
    """A named composition of experts (made at once, without a job)."""

    name: Name = Field(description="Name of the mixture.")
    experts: list[ExpertName] = Field(min_length=1, description="Experts that share a tokenizer.")
    weights: list[float] | None = Field(None, description="Prior (or fixed) weight of each expert; empty: equal.")
    gate: GateConfig = Field(default_factory=GateConfig, description="How weights come about.")


def parse_spec(data: dict[str, Any]) -> Any:
    """A spec from its JSON, or BadSpec with all complaints at once."""
    try:
        return _adapter.validate_python(data)
    except ValidationError as error:
        raise BadSpec(sentences(error)) from None


def parse_as(kind: type[SpecType], data: dict[str, Any]) -> SpecType:
    """A spec of one kind, for what is no job; BadSpec with all complaints at once."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise BadSpec(sentences(error)) from None


def sentences(error: ValidationError) -> list[str]:
    """A sentence for each complaint of a validation."""
    found = []
    for one in error.errors():
        if one["type"] == "default_factory_not_called":  # it waits for a field whose own complaint stands beside it
            continue
        where = ".".join(str(part) for part in one["loc"] if part not in SPECS) or "spec"
        found.append(f"{where}: {_complaint(one)}.")
    return found


def _complaint(one: ErrorDetails) -> str:
    """One fault in our own words; only what they cannot say better is left in the validator's."""
    message = one["msg"].removeprefix("Value error, ")
    if one["type"] == "missing":
        return "must be given, but is missing"
    if one["type"] == "too_short":
        return f"give at least {one['ctx']['min_length']}, not {one['ctx']['actual_length'] or 'none'}"
    if one["type"] == "string_too_short":
        return "must be given, but is empty"
    if message.startswith("Input should be "):
        return f"must be {message.removeprefix('Input should be ')}, but is {one['input']!r} instead"
    return message
