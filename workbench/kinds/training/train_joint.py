"""Train one model on all domains jointly: DEMix, with an expert per domain, or one of its baselines."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from engine.config import (
    LoraConfig,
    MethodName,
    MoeConfig,
    TrainingConfig,
)
from engine.training.methods import METHODS
from workbench.kinds.kind import Kind, named, no_path
from workbench.spec_base import RETAIN, Name, Spec, require_others

DENSE = METHODS["dense"].only_expert  # name of the only expert of a dense model


def _method_sentences() -> str:
    """Every method with what it does, for the help."""
    return "; ".join(f"{name}: {method.sentence}" for name, method in METHODS.items()) + "."


class TrainJoint(Spec):
    """Train a DEMix model: one expert per domain, everything else shared (DEMix §3). Or what it is compared with."""

    kind: Literal["train-joint"] = "train-joint"
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
    retain: list[Name] = Field(default_factory=list, description=f"{RETAIN} With one expert only.")

    @model_validator(mode="after")
    def _distinct(self) -> TrainJoint:
        if len(set(self.domains)) < len(self.domains):
            raise ValueError("name each domain once")
        if self.retain and len(self.experts) > 1:
            raise ValueError(
                "domains to retain need a single expert: train on one domain, or by a method with one for all"
            )
        require_others(self.retain, self.domains)
        return self

    @property
    def experts(self) -> dict[str, list[str]]:
        """The names of the experts that it makes, each with the domains that train it."""
        if only := METHODS[self.method].only_expert:
            return {f"{self.name}/{only}": self.domains}
        return {f"{self.name}/{domain}": [domain] for domain in self.domains}


KIND = Kind(
    spec=TrainJoint,
    title="Train joint model",
    creates=lambda spec: [("mixture", spec.name), *named("expert", *spec.experts)],
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains, *spec.retain)],
    reads=no_path,
)
