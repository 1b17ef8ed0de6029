"""Make a seed model, which trainings start from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from engine.config import MOST_SEED, ModelConfig
from workbench.errors import BadSpecError
from workbench.kinds.kind import Kind, Probe, ResultLink, named
from workbench.specs.base import ExpertName, Name, Spec, absolute, hub_name


class MakeSeed(Spec):
    """Make a seed model: from a folder, the hub or an expert, or a new small one with a tokenizer."""

    kind: Literal["make-seed"] = "make-seed"
    name: Name = Field(description="Name of the seed model.")
    source: Literal["fresh", "folder", "hub", "expert"] = Field(
        "fresh", description="fresh, folder (local), hub (downloads) or expert (a copy of a trained one)."
    )
    location: str = Field("", description="Folder or hub name (NAME or NAME@REVISION) of the model; empty for others.")
    expert: ExpertName | None = Field(
        None, description="Expert whose full model, shared parameters included, becomes the seed."
    )
    shape: ModelConfig = Field(
        default_factory=ModelConfig, title="Shape of a fresh model", description="Shape of a fresh model."
    )
    vocab_size: int = Field(4096, ge=300, le=262_144, description="Entries of a fresh byte-level BPE tokenizer.")
    domains: list[Name] = Field(default_factory=list, description="Domains whose text trains a fresh tokenizer.")
    seed: int = Field(0, ge=0, le=MOST_SEED, description="Seed of the fresh weights.")

    @field_validator("location")
    @classmethod
    def _local(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("source") == "hub" and value:
            hub_name(value)
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


def _probe(spec: MakeSeed) -> Probe[MakeSeed]:
    if spec.source == "hub":
        raise BadSpecError(
            ["A model of the hub is measured after its download: make the seed model without a forecast."]
        )
    return Probe(spec)


KIND = Kind(
    spec=MakeSeed,
    title="Make seed",
    first_step="seeds",
    creates=lambda spec: named("seed model", spec.name),
    requires=lambda spec: [*named("expert", spec.expert), *named("domain", *spec.domains)],
    reads=lambda spec: spec.location if spec.source == "folder" else "",
    probe=_probe,
    command="seed make NAME",
    sentence=lambda result: (
        f"{result['num_parameters']:,} parameters; the tokenizer has {result['vocab_size']:,} entries. "
        f"{result.get('changes', '')}".rstrip()
    ),
    link=ResultLink(
        "train",
        "Train on it",
        lambda result: {"train.what": "DEMix, LoRA, MoE or dense", "train-joint.seed_model": result["seed_model"]},
    ),
)
