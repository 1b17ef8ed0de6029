"""What a person may ask for. A spec validates itself, is stored as JSON on its job, and is the only input of the work.

Every description here is shown as form help, in `--help` and in the API schema. Things are named by their names.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from engine.config import (
    AdaptingConfig,
    Evidence,
    GateConfig,
    LoraConfig,
    MethodName,
    ModelConfig,
    MoeConfig,
    TrainingConfig,
)
from engine.training.methods import METHODS
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
from workbench.errors import BadSpec
from workbench.replications.cbtm.names import Arm, CbtmRun, arms_of
from workbench.replications.cbtm.sizes import SIZES as CBTM_SIZES
from workbench.replications.cbtm.sizes import CbtmSize
from workbench.replications.demix.names import DemixRun
from workbench.replications.demix.sizes import SIZES as DEMIX_SIZES
from workbench.replications.demix.sizes import DemixSize
from workbench.replications.sizes import Size, SizeName
from workbench.spec_base import LONGEST_STEM, MOST_LETTERS, ExpertName, LocalPath, Name, Stem, absolute
from workbench.spec_base import Spec as Spec


class ImportCorpus(Spec):
    """Read text, refuse what is broken, split it and keep it as one or several domains."""

    kind: Literal["import-corpus"] = "import-corpus"
    name: Name = Field(description="Name of the corpus, and of its domain unless the records name theirs.")
    path: LocalPath = Field("", description="File or folder: txt, jsonl, csv, parquet, and gz or xz of these.")
    dataset: str = Field("", description="Name of a Hugging Face data set; downloads it.")
    found: str = Field("", description="Text found on this machine: one of the demo's sources.")
    role: Literal["train", "novel"] = Field("train", description="train, or novel: kept aside to test on.")
    text_field: str = Field("text", description="Field or column that holds the text.")
    domain_field: str = Field("", description="Field that names each record's domain; empty: one domain.")
    group_field: str = Field("", description="Records that agree in this field stay in one split (such as source).")
    licence: str = Field("", description="Licence of the text, as you know it.")
    max_bytes: int | None = Field(None, gt=0, description="Stop after this many bytes of text; empty reads all.")
    skip_bad: bool = Field(False, description="Leave broken records out and list them, instead of refusing the import.")
    piece_length: int | None = Field(
        None, ge=100, description="Cut longer documents into pieces of at most this many characters; empty: never."
    )
    anonymize: bool = Field(
        False,
        description="Replace e-mail addresses, phone, card and social security numbers, Facebook ids and user handles "
        "by dummy tokens (DEMix table 8).",
    )

    @model_validator(mode="after")
    def _one_source(self) -> ImportCorpus:
        if sum(map(bool, (self.path, self.dataset, self.found))) != 1:
            raise ValueError("give exactly one of path, dataset and found")
        return self


class MakeSeed(Spec):
    """Make a seed model: take one from a folder or the hub, or begin a fresh small one with a tokenizer."""

    kind: Literal["make-seed"] = "make-seed"
    name: Name = Field(description="Name of the seed model.")
    source: Literal["fresh", "folder", "hub"] = Field("fresh", description="fresh, folder (local) or hub (downloads).")
    location: str = Field("", description="Folder or hub name of the model; empty for a fresh one.")
    shape: ModelConfig = Field(default_factory=ModelConfig, description="Shape of a fresh model.")
    vocab_size: int = Field(4096, ge=300, le=262_144, description="Entries of a fresh byte-level BPE tokenizer.")
    domains: list[Name] = Field(default_factory=list, description="Domains whose text trains a fresh tokenizer.")
    seed: int = Field(0, ge=0, description="Seed of the fresh weights.")

    @field_validator("location")
    @classmethod
    def _local(cls, value: str, info: ValidationInfo) -> str:
        return absolute(value) if info.data.get("source") == "folder" else value

    @model_validator(mode="after")
    def _complete(self) -> MakeSeed:
        if self.source == "fresh" and not self.domains:
            raise ValueError("a fresh seed needs at least one domain to train its tokenizer on")
        if self.source != "fresh" and not self.location:
            raise ValueError("give the location of the model: a folder, or its name on the hub")
        return self


DENSE = METHODS["dense"].only_expert  # what the one expert of a dense model is called


def _told_methods() -> str:
    """Every method with its sentence."""
    return "; ".join(f"{name}: {method.sentence}" for name, method in METHODS.items()) + "."


class TrainDemix(Spec):
    """Train a DEMix model: one expert per domain, everything else shared (DEMix §3). Or what it is compared with."""

    kind: Literal["train-demix"] = "train-demix"
    name: Name = Field(description="Name of the mixture that will hold the experts; they are called NAME/DOMAIN.")
    seed_model: Name = Field(description="Seed model to start from.")
    domains: list[Name] = Field(
        min_length=1, description="Domains, one expert each (dense, moe: one for all, such as NAME/dense)."
    )
    method: MethodName = Field("demix", description=_told_methods())
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="How to train.")
    lora: LoraConfig = Field(default_factory=LoraConfig, description="The adapters, with the method lora.")
    moe: MoeConfig = Field(default_factory=MoeConfig, description="The networks, with the method moe.")

    @model_validator(mode="after")
    def _distinct(self) -> TrainDemix:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        return self

    @property
    def experts(self) -> dict[str, list[str]]:
        """The names of the experts that it makes, each with the domains that train it."""
        if only := METHODS[self.method].only_expert:
            return {f"{self.name}/{only}": self.domains}
        return {f"{self.name}/{domain}": [domain] for domain in self.domains}


class TrainExpert(Spec):
    """Add an expert: copy a parent, train only the copy on a domain, change nothing else (DEMix §6)."""

    kind: Literal["train-expert"] = "train-expert"
    name: Name = Field(description="Name of the new expert.")
    domain: Name = Field(description="Domain to train on.")
    mixture: Name = Field(description="Mixture whose base the expert is for; its experts are the possible parents.")
    parent: ExpertName | None = Field(
        None, description="Expert to copy; empty takes the nearest by its posterior on held-out text."
    )
    join: bool = Field(True, description="Put the new expert into the mixture when it is done.")
    whole: bool = Field(
        False,
        description="Train the shared parameters, too (dense-DAPT): makes a mixture NAME, on a base of its own, of one "
        "expert NAME/DOMAIN; the model it began from stays as it is.",
    )
    watch: list[Name] = Field(
        default_factory=list,
        description="Domains whose held-out loss is measured at each evaluation, to see what is forgotten (Fig. 6).",
    )
    training: AdaptingConfig = Field(default_factory=AdaptingConfig, description="How to train.")

    @property
    def expert(self) -> str:
        """What the new expert is called."""
        return f"{self.name}/{self.domain}" if self.whole else self.name

    @property
    def certificate(self) -> CertifyAddition | None:
        """The wish to certify its addition afterwards; None where it is added to nothing."""
        if self.whole or not self.join:
            return None
        return CertifyAddition(expert=self.name, mixture=self.mixture)

    @model_validator(mode="after")
    def _watch_others(self) -> TrainExpert:
        if len(set(self.watch)) < len(self.watch) or self.domain in self.watch:
            raise ValueError(
                "name each domain to watch once, and not the one that is trained on: it is measured anyway"
            )
        return self


class AverageExperts(Spec):
    """Make one model of several: the weighted average of their parameters (BTM, Li et al. 2022, §3.3)."""

    kind: Literal["average-experts"] = "average-experts"
    name: Name = Field(description="Name of the mixture that will hold the average; the expert is called NAME/average.")
    experts: list[ExpertName] = Field(
        min_length=2, description="Experts to average: of one architecture, and from one seed model."
    )
    weights: list[float] | None = Field(None, description="Weight of each expert; empty: equal.")
    prior: Name | None = Field(None, description="Saved prior whose shares are the weights (BTM: a cached one).")

    @property
    def expert(self) -> str:
        """What the average is called."""
        return f"{self.name}/average"

    @model_validator(mode="after")
    def _weighable(self) -> AverageExperts:
        if len(set(self.experts)) < len(self.experts):
            raise ValueError("name each expert once")
        if self.weights is not None and self.prior is not None:
            raise ValueError("give weights or a prior, not both")
        if self.weights is not None:
            if len(self.weights) != len(self.experts):
                raise ValueError(f"give one weight for each of the {len(self.experts)} experts")
            if not (min(self.weights) >= 0 and 0 < sum(self.weights) < float("inf")):
                raise ValueError("weights must be 0 or more, and one of them above 0")
        return self


class Evaluate(Spec):
    """Score experts on held-out text and keep every token's log-likelihood."""

    kind: Literal["evaluate"] = "evaluate"
    mixture: Name = Field(description="Mixture whose experts are scored.")
    experts: list[ExpertName] = Field(default_factory=list, description="Experts on its base to score, too.")
    domains: list[Name] = Field(default_factory=list, description="Domains to score on; empty takes all.")
    split: Literal["dev", "test"] = Field("test", description="Which held-out part.")
    block_size: int | None = Field(
        None, ge=8, description="Tokens of context at most; empty: as in its stored scores, or as it was trained."
    )
    max_tokens: int | None = Field(
        None, ge=100, description="Tokens per domain at most; empty: as in its stored scores, or 20,000."
    )


class CertifyAddition(Spec):
    """Certify an addition: nothing that was there has changed, and what each domain gained or lost (DEMix §6)."""

    kind: Literal["certify-addition"] = "certify-addition"
    expert: ExpertName = Field(description="Expert that was added.")
    mixture: Name = Field(description="Mixture that holds it.")
    split: Literal["dev", "test"] = Field("test", description="Which held-out part.")
    block_size: int | None = Field(
        None, ge=8, description="Tokens of context at most; empty: as in its stored scores, or as it was trained."
    )
    max_tokens: int | None = Field(
        None, ge=100, description="Tokens per domain at most; empty: as in its stored scores, or 20,000."
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
    block_size: int = Field(256, ge=8, description="Tokens of context at most.")
    max_tokens: int = Field(20_000, ge=100, description="Tokens per domain at most.")
    num_blocks: int = Field(100, ge=1, description="Dev blocks behind each cached prior, exactly (paper: 100).")
    evidence: Evidence = Field("prefix", description="What the posterior sees: prefix (paper) or last_token (code).")
    num_prefixes: int = Field(50, ge=10, le=10_000, description="Pieces of training text to go on from.")
    prefix_length: int = Field(32, ge=1, description="Tokens of each piece that are read.")
    continuation_length: int = Field(32, ge=1, description="Tokens of each piece that are to be guessed.")
    temperature: float = Field(0.0, ge=0, description="0 takes the most probable token; above, tokens are drawn.")
    seed: int = Field(0, ge=0, description="Seed of the pieces and of what is drawn.")


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


class Replicate(Spec):
    """Judge a paper's claims by the models and scores that jobs of this name made, and write the report."""

    kind: str
    paper: str
    name: Name = Field(description="Name of the replication; the names of all that it makes begin with it.")
    size: SizeName = Field("tiny", description="tiny (two CPU cores, an hour), small (a GPU) or smoke (seconds).")
    budget: Size
    seeds: int = Field(2, ge=1, le=20, description="Seeds; everything is made once for each.")
    domains: list[Name] = Field(min_length=2, description="Training domains.")
    novel: list[Name] = Field(min_length=1, description="Novel domains.")
    imports: list[ImportCorpus] = Field(default_factory=list, description="Text to import before all else.")
    partial: bool = Field(False, description="Report what is there now, and say what is missing.")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({*self.domains, *self.novel}) < len(self.domains) + len(self.novel):
            raise ValueError("name each domain once, as training or as novel")
        for names, most in ((self.names(), MOST_LETTERS), (self.stems(), LONGEST_STEM)):
            longest = max(names, key=len, default="")
            if len(longest) > most:
                raise ValueError(
                    f"the names of what it makes must have at most {most} characters, but “{longest}” would have "
                    f"{len(longest)}: choose a shorter name for it or for the domain"
                )
        return self

    def stems(self) -> list[str]:
        """Those names of what it makes with which other names begin, as those of clusters' domains do."""
        return []

    @abstractmethod
    def names(self) -> list[str]:
        """What everything it makes will be called, the experts of a mixture left out."""


_BUDGET = "Model, trainings and amounts of text: those of the size when it was asked for."


class ReplicateDemix(Replicate):
    """Judge DEMix's claims by the models and scores that jobs of this name made, and write the report."""

    kind: Literal["replicate"] = "replicate"
    paper: Literal["demix"] = Field("demix", description="The paper.")
    budget: DemixSize = Field(default_factory=lambda told: DEMIX_SIZES[told["size"]], description=_BUDGET)
    removed: list[Name] = Field(default_factory=list, description="Training domains that a model is trained without.")

    @model_validator(mode="after")
    def _of_these(self) -> ReplicateDemix:
        if not set(self.removed) <= set(self.domains):
            raise ValueError("only a training domain can be left out of the training")
        return self

    def names(self) -> list[str]:
        runs = [DemixRun(self.name, seed) for seed in range(self.seeds)]
        return [name for run in runs for name in run.names(self.novel, self.removed)]


class ReplicateCbtm(Replicate):
    """Judge C-BTM's claims by the models and scores that jobs of this name made, and write the report."""

    kind: Literal["replicate-cbtm"] = "replicate-cbtm"
    paper: Literal["cbtm"] = Field("cbtm", description="The paper.")
    budget: CbtmSize = Field(default_factory=lambda told: CBTM_SIZES[told["size"]], description=_BUDGET)
    tasks: LocalPath = Field("", description="Folder of labelled tasks, for tables 1, 10 and 11; empty: without them.")

    def names(self) -> list[str]:
        return [name for run in self._runs() for name in run.names(self._arms())]

    def stems(self) -> list[str]:
        return [name for run in self._runs() for name in run.stems(self._arms())]

    def _runs(self) -> list[CbtmRun]:
        return [CbtmRun(self.name, seed) for seed in range(self.seeds)]

    def _arms(self) -> list[Arm]:
        return arms_of(self.budget, len(self.domains))


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
    | AverageExperts
    | Evaluate
    | CertifyAddition
    | CertifyRemoval
    | MeasureOverlap
    | Classify
    | ReplicateDemix
    | ReplicateCbtm
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
    "average-experts": AverageExperts,
    "evaluate": Evaluate,
    "certify-addition": CertifyAddition,
    "certify-removal": CertifyRemoval,
    "overlap": MeasureOverlap,
    "classify": Classify,
    "replicate": ReplicateDemix,
    "replicate-cbtm": ReplicateCbtm,
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


class TrainClusters(Spec):
    """Branch, train, merge (C-BTM §2.2): a model of its own for each cluster, then a mixture of them.

    A plan of jobs: one for each cluster, and one that composes the mixture. With one cluster it is the dense baseline.
    Models branch from one seed model, or in a further iteration from experts that are trained.
    """

    clustering: Name = Field(description="Clustering whose clusters are trained on, one model each.")
    name: Stem = Field(description="Name of the mixture; the models are called NAME/NUMBER.")
    seed_model: Name | None = Field(None, description="Seed model that each of them starts from.")
    branch_from: Name | None = Field(
        None,
        description="Mixture of trained experts to start from instead: each model from the expert that was trained on "
        "most of its cluster's documents, or where none was on any, from the nearest by the posterior.",
    )
    training: TrainingConfig = Field(
        default_factory=lambda: TrainingConfig(warmup=0.0, num_steps=1000),
        description="How to train (the paper: no warm-up); the steps are those of all models together, so that any "
        "number of clusters sees as many tokens.",
    )

    @model_validator(mode="after")
    def _one_beginning(self) -> TrainClusters:
        if (self.seed_model is None) == (self.branch_from is None):
            raise ValueError("give a seed model to start from, or a mixture to branch from, and not both")
        return self


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
    if message.startswith("Input should be "):
        return f"must be {message.removeprefix('Input should be ')}, but is {one['input']!r} instead"
    return message
