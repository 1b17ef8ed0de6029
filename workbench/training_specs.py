"""What a person may ask for that makes models: seeds, trainings, and what is made of trained experts."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, ValidationInfo, field_validator, model_validator

from engine.config import (
    MOST_SEED,
    MOST_TOKENS,
    AdaptingConfig,
    LoraConfig,
    ModelConfig,
    MoeConfig,
    TrainingConfig,
)
from engine.errors import EngineError
from engine.methods.registry import get_method, joint_methods
from workbench.spec_base import RETAIN, ExpertName, Name, Spec, absolute, require_others


class MakeSeed(Spec):
    """Make a seed model: take one from a folder, the hub or an expert, or begin a fresh small one with a tokenizer."""

    kind: Literal["make-seed"] = "make-seed"
    name: Name = Field(description="Name of the seed model.")
    source: Literal["fresh", "folder", "hub", "expert"] = Field(
        "fresh", description="fresh, folder (local), hub (downloads) or expert (a copy of one that is trained)."
    )
    location: str = Field("", description="Folder or hub name of the model; empty for any other source.")
    expert: ExpertName | None = Field(
        None, description="Expert whose whole model, what it shares with others included, becomes the seed."
    )
    shape: ModelConfig = Field(default_factory=ModelConfig, description="Shape of a fresh model.")
    vocab_size: int = Field(4096, ge=300, le=262_144, description="Entries of a fresh byte-level BPE tokenizer.")
    domains: list[Name] = Field(default_factory=list, description="Domains whose text trains a fresh tokenizer.")
    seed: int = Field(0, ge=0, le=MOST_SEED, description="Seed of the fresh weights.")

    @field_validator("location")
    @classmethod
    def _local(cls, value: str, info: ValidationInfo) -> str:
        return absolute(value) if info.data.get("source") == "folder" else value

    def local_paths(self) -> list[str]:
        return [self.location] if self.source == "folder" else []

    @model_validator(mode="after")
    def _complete(self) -> MakeSeed:
        if self.source == "fresh" and not self.domains:
            raise ValueError("a fresh seed needs at least one domain to train its tokenizer on")
        if self.source in ("folder", "hub") and not self.location:
            raise ValueError("give the location of the model: a folder, or its name on the hub")
        if (self.source == "expert") != (self.expert is not None):
            raise ValueError("name an expert with the source expert, and with no other")
        return self


def _method_sentences() -> str:
    """Every method with its sentence."""
    return "; ".join(f"{name}: {method.sentence}" for name, method in joint_methods().items()) + "."


def _joint_method(name: str) -> str:
    if name not in joint_methods():
        raise ValueError(f"there is no such method; there are: {', '.join(joint_methods())}")
    return name


MethodName = Annotated[str, AfterValidator(_joint_method)]


class TrainDemix(Spec):
    """Train a DEMix model: one expert per domain, everything else shared (DEMix §3). Or what it is compared with."""

    kind: Literal["train-demix"] = "train-demix"
    name: Name = Field(description="Name of the mixture that will hold the experts; they are called NAME/DOMAIN.")
    seed_model: Name = Field(description="Seed model to start from.")
    domains: list[Name] = Field(
        min_length=1, description="Domains, one expert each (dense, moe: one for all, such as NAME/dense)."
    )
    method: MethodName = Field("demix", description=_method_sentences())
    training: TrainingConfig = Field(default_factory=TrainingConfig, description="How to train.")
    lora: LoraConfig = Field(
        default_factory=LoraConfig, description="The adapters, with the methods lora and lora-mixed."
    )
    moe: MoeConfig = Field(default_factory=MoeConfig, description="The networks, with the method moe.")
    options: dict[str, JsonValue] = Field(
        default_factory=dict, description="Settings of a method that has no group of its own, as a JSON object."
    )
    retain: list[Name] = Field(default_factory=list, description=f"{RETAIN} With one expert only.")

    @field_validator("options", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        """A command line gives them as text."""
        return json.loads(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _distinct(self) -> TrainDemix:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        if self.retain and len(self.experts) > 1:
            raise ValueError("domains to retain are looked at under one expert: train on one domain, or one for all")
        require_others(self.retain, self.domains)
        return self

    @model_validator(mode="after")
    def _configured(self) -> TrainDemix:
        method = get_method(self.method)
        if self.options and method.config_field != "options":
            raise ValueError(f"options must be empty with the method {self.method}: set {method.config_field} instead")
        try:
            _ = self.method_config
        except EngineError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def method_config(self) -> Any:
        """The settings that only this spec's method has, as its own dataclass; None where it has none."""
        method = get_method(self.method)
        group = getattr(self, method.config_field)
        return method.config_from(group) if group is self.options else group

    @property
    def experts(self) -> dict[str, list[str]]:
        """The names of the experts that it makes, each with the domains that train it."""
        if only := get_method(self.method).only_expert:
            return {f"{self.name}/{only}": self.domains}
        return {f"{self.name}/{domain}": [domain] for domain in self.domains}


class CertifyAddition(Spec):
    """Certify an addition: nothing that was there has changed, and what each domain gained or lost (DEMix §6)."""

    kind: Literal["certify-addition"] = "certify-addition"
    expert: ExpertName = Field(description="Expert that was added.")
    mixture: Name = Field(description="Mixture that holds it.")
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
