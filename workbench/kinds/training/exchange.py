"""Kinds of job that bring experts in from other tools and workbenches, and take experts and mixtures there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, TypeAdapter, field_validator, model_validator

from engine.path_kinds import describe_path
from workbench.errors import BadSpecError
from workbench.formatting.number_format import amount, pluralize
from workbench.kinds.kind import Kind, Probe, ResultLink, expert_link, named, no_path, nothing
from workbench.specs.base import (
    HUB,
    ExpertName,
    LocalPath,
    Name,
    Spec,
    absolute,
    hub_name,
    hub_origin,
    output_complaints,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from workbench.schema.tables import Expert, Mixture


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
    def _check_name(self) -> ImportExpert:
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


def _import_expert_complaints(_: Session, spec: ImportExpert) -> list[str]:
    if not spec.folder or Path(spec.folder).is_dir():
        return []
    described = describe_path(Path(spec.folder))
    if described.kind == "packed expert":
        return [f"{spec.folder} is a packed expert, for `workbench expert unpack`."]
    has_remedy = described.kind in ("pointer", "gguf")
    return [
        f"{described.sentence} {described.remedy if has_remedy else 'Give the folder of an adapter or of a model.'}"
    ]


def _import_expert_probe(spec: ImportExpert) -> Probe[ImportExpert]:
    if not spec.folder:
        raise BadSpecError(["An expert of the hub is measured after its download: import it without a forecast."])
    return Probe(spec)


IMPORT_EXPERT = Kind(
    spec=ImportExpert,
    title="Import expert",
    creates=lambda spec: named("expert", spec.expert),
    requires=lambda spec: [*named("seed model", spec.seed_model), *named("domain", *spec.domains)],
    reads=lambda spec: spec.folder,
    complaints=_import_expert_complaints,
    probe=_import_expert_probe,
    command="expert import SOURCE",
    sentence=lambda result: (
        f"{result['expert']} is an expert of the method {result['reason']}. {result.get('changes', '')}".rstrip()
    ),
    link=expert_link("See the expert"),
)


class ExportExpert(Spec):
    """Export an expert as a folder that transformers, PEFT or llama.cpp loads."""

    kind: Literal["export-expert"] = "export-expert"
    expert: ExpertName = Field(description="Expert to export.")
    folder: LocalPath = Field(min_length=1, description="Folder to write; it must not exist yet.")
    format: Literal["hf", "peft", "gguf"] = Field(
        "hf",
        description="hf: the expert with its base as one model for transformers; peft: only a LoRA adapter; gguf: "
        "the model for llama.cpp, by its converter.",
    )


def _find_expert(session: Session, name: str) -> Expert | None:
    from workbench.schema.names import find_row  # here, since a spec is read without the registry
    from workbench.schema.tables import Expert

    return find_row(session, Expert, name)


def format_complaints(session: Session, expert: str, format: str) -> list[str]:
    """Why an expert cannot leave in a format; empty if it can, or does not exist."""
    from engine.methods.registry import method_of

    row = _find_expert(session, expert)
    if row is None:
        return []
    method = method_of(row.method)
    if format == "peft" and not method.is_adapter:
        return [f"“{expert}” is not a LoRA adapter: its method is {method.title}: export it as hf."]
    if format != "peft" and method.no_decoder_because:
        return [f"“{expert}” cannot be exported as one model: it {method.no_decoder_because}."]
    return []


ADDS_NETWORKS = {"hf": False, "moe": True, "peft": False, "gguf": False}  # else a mixture's experts are averaged
LOADED_BY = {  # what loads each format of exported experts and mixtures
    "hf": "AutoModelForCausalLM.from_pretrained",
    "moe": "AutoModelForCausalLM.from_pretrained",
    "peft": "PeftModel.from_pretrained",
    "gguf": "llama-cli -m",
}


EXPORT_EXPERT = Kind(
    spec=ExportExpert,
    title="Export expert",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert)],
    reads=no_path,
    complaints=lambda session, spec: [
        *output_complaints(spec.folder, "folder"),
        *format_complaints(session, spec.expert, spec.format),
    ],
    command="expert export EXPERT FOLDER",
    sentence=lambda result: (
        f"{result['expert']} is in {result['folder']} ({amount(result['num_bytes'], 'B')}): load it with "
        f"{LOADED_BY[result['format']]}."
    ),
    link=expert_link("See the expert"),
    runner="jobs.kinds.training.exports:export",
)


class ExportMixture(Spec):
    """Export the experts of a mixture as one model: their average, or a mixture of experts of transformers."""

    kind: Literal["export-mixture"] = "export-mixture"
    mixture: Name = Field(description="Mixture to export.")
    folder: LocalPath = Field(min_length=1, description="Folder to write; it must not exist yet.")
    format: Literal["hf", "moe", "gguf"] = Field(
        "hf",
        description="hf: the weighted average of the active experts; moe: one model that adds the outputs of their "
        "feed-forward networks, with the weights of a fixed gate; gguf: the average for llama.cpp, by its converter.",
    )


def mixture_complaints(row: Mixture, format: str) -> list[str]:
    """Why a mixture cannot leave in a format; empty if nothing is against it that its rows show."""
    from engine.methods.registry import method_of
    from engine.mixing.gate_type import gate_type
    from workbench.specs.gates import load_gate

    complaints = []
    gate = gate_type(load_gate(row.gate).kind)
    if ADDS_NETWORKS[format] and not gate.is_constant:
        complaints.append(
            f"The gate “{gate.name}” weighs experts {gate.sentence}, which no checkpoint expresses: set fixed weights "
            "(workbench mixture gate NAME --gate fixed), or export the average (--format hf)."
        )
    members = [member for member in row.members if member.takes_part]
    for expert in (member.expert for member in members):
        if because := method_of(expert.method).no_decoder_because:
            complaints.append(f"“{expert.name}” cannot become a part of one model: it {because}.")
    if not members:
        complaints.append(f"“{row.name}” has no active expert: switch one on.")
    return complaints


def _export_mixture_complaints(session: Session, spec: ExportMixture) -> list[str]:
    from workbench.schema.names import find_row  # here, since a spec is read without the registry
    from workbench.schema.tables import Mixture

    row = find_row(session, Mixture, spec.mixture)
    return [*output_complaints(spec.folder, "folder"), *(mixture_complaints(row, spec.format) if row else ())]


EXPORT_MIXTURE = Kind(
    spec=ExportMixture,
    title="Export mixture",
    creates=nothing,
    requires=lambda spec: [("mixture", spec.mixture)],
    reads=no_path,
    complaints=_export_mixture_complaints,
    command="mixture export MIXTURE FOLDER",
    sentence=lambda result: (
        f"{pluralize(len(result['weights']), 'expert')} of {result['mixture']} as one model: {result['folder']} "
        f"({amount(result['num_bytes'], 'B')}). Load it with {LOADED_BY[result['format']]}."
    ),
    link=ResultLink("mixtures", "See the mixture", lambda result: {"mixture": result["mixture"]}),
    runner="jobs.kinds.training.averages:export_mixture",
)


class PushExpert(Spec):
    """Upload an expert with its model card to a repository of the Hugging Face hub."""

    kind: Literal["push-expert"] = "push-expert"
    expert: ExpertName = Field(description="Expert to upload.")
    repository: str = Field(description="Repository on the hub, such as you/law; it is created if it is not there.")
    format: Literal["hf", "peft", "gguf"] = Field("hf", description="As of workbench expert export.")
    public: bool = Field(False, description="Create the repository so that everybody can read it.")

    @field_validator("repository")
    @classmethod
    def _valid(cls, value: str) -> str:
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        try:
            validate_repo_id(value)
        except HFValidationError:
            raise ValueError(f"“{value}” is not a repository name: give NAME, or USER/NAME") from None
        return value


def push_complaints(session: Session, spec: PushExpert) -> list[str]:
    """Why an expert cannot be pushed; empty if it can, or does not exist."""
    row = _find_expert(session, spec.expert)
    is_from_hub = row is not None and row.seed is not None and bool(hub_origin(row.seed.source)[0])
    if row is not None and spec.format == "peft" and not is_from_hub:
        return [f"The seed model of “{spec.expert}” is not from the hub, where nobody could find it: push it as hf."]
    return format_complaints(session, spec.expert, spec.format)


PUSH_EXPERT = Kind(
    spec=PushExpert,
    title="Push expert",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert)],
    reads=no_path,
    complaints=push_complaints,
    command="expert push EXPERT REPOSITORY",
    sentence=lambda result: f"{result['expert']} is at {result['url']} (commit {result['commit']}).",
    link=expert_link("See the expert"),
    runner="jobs.kinds.training.exports:push",
)


class PackExpert(Spec):
    """Pack an expert into one verified file that another workbench unpacks."""

    kind: Literal["pack-expert"] = "pack-expert"
    expert: ExpertName = Field(description="Expert to pack.")
    file: LocalPath = Field(min_length=1, description="File to write; it must not exist yet.")
    with_seed: bool = Field(False, description="Also pack its seed model, for workbenches that do not have it.")


def _pack_expert_complaints(session: Session, spec: PackExpert) -> list[str]:
    row = _find_expert(session, spec.expert)
    if row is not None and row.artifact_id == row.base_id:
        return [f"“{spec.expert}” is a seed model as it is: pack one of its experts, with the seed."]
    if complaints := output_complaints(spec.file, "file"):
        return complaints
    if not Path(spec.file).parent.is_dir():
        return [f"There is no folder {Path(spec.file).parent}: make it first, or choose another."]
    return []


PACK_EXPERT = Kind(
    spec=PackExpert,
    title="Pack expert",
    creates=nothing,
    requires=lambda spec: [("expert", spec.expert)],
    reads=no_path,
    complaints=_pack_expert_complaints,
    command="expert pack EXPERT FILE",
    sentence=lambda result: (
        f"{result['expert']}{' with its seed model' if result['with_seed'] else ''} is in {result['file']} "
        f"({amount(result['num_bytes'], 'B')})."
    ),
    link=expert_link("See the expert"),
    runner="jobs.kinds.training.exports:pack",
)


class UnpackExpert(Spec):
    """Unpack a file that another workbench packed: an expert, and its seed model where it is inside."""

    kind: Literal["unpack-expert"] = "unpack-expert"
    file: LocalPath = Field(min_length=1, description="File that another workbench packed.")
    name: str = Field("", description="Name of the expert; empty: the name that it was packed under.")

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        return _NAME.validate_python(value) if value.strip() else ""


UNPACK_EXPERT = Kind(
    spec=UnpackExpert,
    title="Unpack expert",
    creates=lambda spec: named("expert", spec.name),
    requires=nothing,
    reads=lambda spec: spec.file,
    command="expert unpack FILE",
    sentence=lambda result: (
        f"{result['expert']} is unpacked"
        + (f", and the seed model {result['new_seed']}." if result["new_seed"] else ".")
    ),
    link=expert_link("See the expert"),
)


KIND = (IMPORT_EXPERT, EXPORT_EXPERT, EXPORT_MIXTURE, PUSH_EXPERT, PACK_EXPERT, UNPACK_EXPERT)
