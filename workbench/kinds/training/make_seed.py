"""Make a seed model, which trainings start from."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from engine.config import MOST_SEED, ModelConfig
from workbench.errors import BadSpecError
from workbench.kinds.kind import Kind, Probe, ResultLink, named
from workbench.specs.base import ExpertName, Name, Spec, absolute, hub_name

_LOCAL = ("folder", "file")
_WITH_GGUF = (*_LOCAL, "package")
_FILES = (".gguf", ".safetensors")
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?")


class MakeSeed(Spec):
    """Make a seed model: of a model that exists, or a new small one with a tokenizer."""

    kind: Literal["make-seed"] = "make-seed"
    name: Name = Field(description="Name of the seed model.")
    source: Literal["fresh", "folder", "file", "package", "hub", "expert"] = Field(
        "fresh",
        description="fresh, folder or file (local), package (installed Python package), hub (downloads) or expert "
        "(a copy of a trained one).",
    )
    location: str = Field(
        "",
        description="Folder, file (.gguf, or .safetensors next to its config.json), package or hub name (NAME or "
        "NAME@REVISION) of the model; empty for others.",
    )
    bf16: bool = Field(
        False,
        title="Half the disk: store a GGUF file's weights in bf16",
        description="Store the weights of a GGUF file in bf16: half the disk of float32, but each number is rounded.",
    )
    expert: ExpertName | None = Field(
        None, description="Expert whose full model, shared parameters included, becomes the seed."
    )
    chat_template: str = Field(
        "",
        max_length=1 << 16,
        description="Chat template (the text of a Jinja template) in place of the model's own; empty: its own, if any.",
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
        source = info.data.get("source")
        if source == "hub" and value:
            hub_name(value)
        if source == "package" and value and not _PACKAGE.fullmatch(value):
            raise ValueError(f"“{value[:200]}” is not the name of a Python package")
        if source == "file" and value and not value.lower().endswith(_FILES):
            raise ValueError(f"{value[:200]} is neither a .gguf nor a .safetensors file")
        return absolute(value) if source in _LOCAL else value

    def local_paths(self) -> list[str]:
        return [self.location] if self.source in _LOCAL else []

    @model_validator(mode="after")
    def _complete(self) -> MakeSeed:
        if self.source == "fresh" and not self.domains:
            raise ValueError("a fresh seed needs at least one domain to train its tokenizer on")
        if self.source not in ("fresh", "expert") and not self.location:
            raise ValueError("give the location of the model: a folder, a file, a package, or its name on the hub")
        if self.bf16 and self.source not in _WITH_GGUF:
            raise ValueError("only a GGUF file can be stored in bf16: that of a folder, of a package, or by its path")
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
    reads=lambda spec: spec.location if spec.source in _LOCAL else "",
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
