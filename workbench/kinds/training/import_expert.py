"""Import an expert that other tools trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, TypeAdapter, field_validator, model_validator

from engine.path_kinds import describe_path
from workbench.errors import BadSpecError
from workbench.kinds.kind import Kind, named
from workbench.kinds.probe import Probe
from workbench.specs.base import Name, Spec, absolute
from workbench.specs.hub_names import HUB, hub_name

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_NAME: TypeAdapter[str] = TypeAdapter(Name)


class ImportExpert(Spec):
    """Import an expert: a PEFT adapter, or a fine-tuned copy of a seed model."""

    kind: Literal["import-expert"] = "import-expert"
    source: str = Field(min_length=1, description="Folder of the adapter or model, or hub:NAME, or hub:NAME@REVISION.")
    seed_model: Name = Field(description="Seed model that it was trained from.")
    name: str = Field("", description="Name of the expert; empty: the last part of the source's.")
    method: Literal["auto", "lora", "demix", "dense"] = Field(
        "auto", description="Method of the expert; auto: LoRA for an adapter, DEMix if only FFNs differ, else dense."
    )

    domains: list[Name] = Field(
        default_factory=list,
        description="Domains here whose text it was trained on, which calibration and the pages then know; empty: "
        "not known.",
    )

    @field_validator("source")
    @classmethod
    def _local(cls, value: str) -> str:
        return value if value.startswith(HUB) else absolute(value)

    @model_validator(mode="after")
    def _named(self) -> ImportExpert:
        if self.source.startswith(HUB):
            hub_name(self.source)
        _NAME.validate_python(self.expert)
        return self

    @property
    def expert(self) -> str:
        """The name of the expert."""
        if self.name:
            return self.name.strip()
        last = hub_name(self.source)[0] if self.source.startswith(HUB) else self.source
        return Path(last).name

    @property
    def folder(self) -> str:
        """The local folder; empty for a name on the hub."""
        return "" if self.source.startswith(HUB) else self.source

    def local_paths(self) -> list[str]:
        return [self.folder] if self.folder else []


def _complaints(_: Session, spec: ImportExpert) -> list[str]:
    if not spec.folder or Path(spec.folder).is_dir():
        return []
    described = describe_path(Path(spec.folder))
    if described.kind == "packed expert":
        return [f"{spec.folder} is a packed expert, for `workbench expert unpack`."]
    has_remedy = described.kind in ("pointer", "gguf")
    return [
        f"{described.sentence} {described.remedy if has_remedy else 'Give the folder of an adapter or of a model.'}"
    ]


def _probe(spec: ImportExpert) -> Probe[ImportExpert]:
    if not spec.folder:
        raise BadSpecError(["An expert of the hub is measured after its download: import it without a forecast."])
    return Probe(spec)


KIND = Kind(
    spec=ImportExpert,
    title="Import expert",
    creates=lambda spec: named("expert", spec.expert),
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains)],
    reads=lambda spec: spec.folder,
    complaints=_complaints,
    probe=_probe,
)
