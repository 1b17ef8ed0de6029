"""Frozen values for pages, without a database behind them. Times are seconds since 1970 (UTC)."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from engine.text.import_report import ReadReport
from engine.text.split_names import HeldOutSplit
from workbench.answers.base import Answer, JsonObject
from workbench.answers.posteriors import PriorSource
from workbench.schema.job_states import ShownState


class StoredJson(Answer):
    """JSON of a row: fields that an older version did not write stay out of it, and those it does not know are kept."""

    model_config = ConfigDict(extra="allow")

    @model_serializer(mode="wrap")
    def _as_stored(self, dump: SerializerFunctionWrapHandler) -> JsonObject:
        return {name: value for name, value in dump(self).items() if name in self.model_fields_set}


class DomainCard(Answer):
    id: str
    name: str
    corpus: str
    role: str  # train | novel
    format: str = "text"  # text | chat: a document is a conversation
    source: str
    licence: str
    num_documents: int
    num_words: int  # white-space tokens, as in DEMix table 1
    num_bytes: int
    splits: dict[str, dict[str, int]]  # split -> {documents, words, bytes}
    data_sha256: str
    created_at: float


class RefusedRecord(Answer):
    """A record that an import left out, and why."""

    path: str | None = None
    line: int | None = None
    reason: str = ""


class ImportReport(StoredJson):
    """What an import read and what it left out."""

    num_documents: int = 0
    num_bytes: int = 0  # of text
    num_duplicates: int = 0
    num_empty: int = 0
    num_refused: int = 0  # records and files
    num_files_refused: int = 0
    refused: list[RefusedRecord] = Field([])  # the first ones
    reasons: dict[str, int] = Field({})  # why records were refused -> how many
    file_reasons: dict[str, int] = Field({})
    fields_not_read: dict[str, int] = Field({})  # of records, next to their conversations -> records
    notes: list[str] = Field([])
    bytes_read: int = 0
    anonymized: dict[str, int] = Field({})  # dummy tokens by category

    def sentences(self) -> list[str]:
        """How many documents were kept, what was left out and why, and what was recognised."""
        if "num_documents" not in self.model_fields_set:
            return []  # of a domain that was made of others
        names = [field.name for field in fields(ReadReport) if field.name != "refused"]
        report = ReadReport(**{name: getattr(self, name) for name in names})
        return [one for one in (report.kept_text(), report.fields_text(), *report.notes) if one]

    @property
    def num_left_out(self) -> int:
        """Records and files that were not kept."""
        return self.num_refused + self.num_duplicates + self.num_empty

    @property
    def is_complete(self) -> bool:
        """Whether nothing was left out."""
        return not (self.num_left_out or self.notes or self.fields_not_read)


class CorpusCard(Answer):
    id: str
    name: str
    source: str
    licence: str
    report: ImportReport
    domains: list[str]
    created_at: float


class SeedCard(Answer):
    id: str
    name: str
    source: str
    family: str
    num_parameters: int
    tokenizer_sha256: str
    config: JsonObject
    size_bytes: int
    created_at: float


class ExpertCard(Answer):
    id: str
    name: str
    method: str
    domain: str  # empty: trained on several
    domains: list[str]  # those that trained it
    parts: list[str] = Field([])  # of an expert: what a request can switch off
    seed: str | None
    parent: str | None  # that it was copied from; of a composition the expert of its first part
    parents: list[str] = Field([])  # all direct ancestors that still exist
    base_id: str
    sha256: str
    tokenizer_sha256: str
    data_sha256: str
    num_parameters: int  # its own, without its base
    total_parameters: int | None = None  # with its base; None where the seed model is not known
    active_parameters: int | None = None  # that one token goes through
    size_bytes: int
    config: JsonObject
    metrics: JsonObject
    tags: list[str]
    notes: str
    enabled: bool
    colour_number: int  # its colour, dash and pattern in every chart: workbench.formatting.palette.look_of
    mark: str  # the characters that stand wherever its colour stands
    mixtures: list[str]
    stale: bool = False  # trained on a cluster that holds other documents now
    code_version: str
    reproducible_from: str = ""  # spec, text, machine and versions that give the same bits; empty in lists
    job_id: str | None
    created_at: float


class ExpertLook(Answer):
    """An expert's name, colour and mark for charts."""

    name: str
    domain: str  # empty: trained on several
    colour_number: int
    mark: str
    job_id: str | None = None  # which trained it


class MemberCard(Answer):
    expert_id: str
    expert: str
    domain: str  # empty: trained on several
    domains: list[str]  # those that trained it
    parts: list[str] = Field([])  # of an expert: what a request can switch off
    weight: float
    active: bool  # in this mixture
    enabled: bool  # in the registry; a disabled expert is active nowhere
    colour_number: int
    mark: str

    @property
    def takes_part(self) -> bool:
        """Whether the expert has weight in the mixture."""
        return self.active and self.enabled and self.weight > 0


class CalibratedGain(Answer):
    """By how much the evidence that a calibration gave a mixture changed its perplexity, in %. Below 0 is a gain."""

    value: float
    low: float  # of the interval of 95 %
    high: float
    at: float | None  # when it was saved; None: not known


class MixtureCard(Answer):
    id: str
    name: str
    base_ids: list[str]  # one for each base, in the order of the members
    gate: JsonObject
    members: list[MemberCard]
    notes: str
    calibration: CalibratedGain | None = None  # of the last calibration that changed the gate
    created_at: float
    version: str = ""  # another one after every change of what stands above


class ClusterCard(Answer):
    id: str
    number: int  # of its centre
    name: str
    num_documents: int
    terms: list[str]  # the strongest first
    representatives: list[str]  # document ids, the nearest to the centre first
    domain: str | None  # that was made of its documents
    stale: bool  # the domain, and every expert trained on it, uses other documents
    experts: list[str]  # trained on that domain
    notes: str


class ClusteringCard(Answer):
    id: str
    name: str
    config: JsonObject  # {"clusters": engine.clusters.config.ClusterConfig, "embedder": {"kind", …}}
    sources: list[str]  # domains
    num_documents: int
    num_fitted: int
    metrics: JsonObject  # costs, sizes, num_blank, num_duplicates, overlap {labels, counts, …}, map {…} or None
    seed: str | None
    clusters: list[ClusterCard]
    stale_experts: list[str]  # trained on documents that have changed since
    size_bytes: int
    job_id: str | None
    created_at: float


class GivenByHand(Answer):
    """The source of a prior whose shares somebody set: no text, hence no fields."""

    model_config = ConfigDict(extra="forbid")


class PriorCard(Answer):
    id: str
    name: str
    shares: dict[str, float]  # expert name -> share; deleted experts are left out
    source: PriorSource | GivenByHand
    created_at: float


class AliasCard(Answer):
    name: str
    model: str  # name of the expert or mixture that it means
    kind: Literal["expert", "mixture"]
    updated_at: float  # when it was set or moved


class ViewCard(Answer):
    name: str
    address: str  # in the studio, such as /experts?method=lora
    updated_at: float


class ReportCard(Answer):
    id: str
    kind: str
    title: str
    about_id: str | None
    findings: JsonObject
    artifact_id: str | None
    job_id: str | None
    created_at: float


class Failure(Answer):
    """The error that a job failed with: its code, and the line of the record if there is one."""

    code: str
    line: int | None = None


class JobCard(Answer):
    id: str
    kind: str
    title: str
    spec: JsonObject
    state: ShownState
    priority: int = 0  # of the jobs that wait, the highest starts first
    attempt: int
    stop_requested: str
    progress: float
    progress_note: str
    eta_seconds: float | None
    eta_soonest: float | None = None
    eta_latest: float | None = None
    error: str
    next_step: str
    failure: Failure | None = None  # of a failed job, if the workbench knows the error
    result: JsonObject
    after: list[str]
    owner: str
    gpus: list[str] = Field([])  # HOST/NUMBER of those that it has leased
    waits_for: str = ""  # why a queued job does not start yet, as a sentence; empty if nothing is known
    created_at: float
    started_at: float | None
    finished_at: float | None


class DeviceHolder(Answer):
    """A job that has leased a GPU."""

    job_id: str
    title: str
    share: float = 1.0  # of the GPU


class DeviceTenantCard(Answer):
    """An API server that shares a GPU with jobs."""

    address: str
    most_bytes: int  # of its models and running generations


class DeviceCard(Answer):
    """A GPU that workers lease to jobs, and who uses it."""

    host: str
    number: str  # of the GPU on its host, or what CUDA_VISIBLE_DEVICES of its worker calls it
    uuid: str
    name: str
    memory_bytes: int  # 0: it is pretended
    is_there: bool  # whether a worker has registered it lately
    worker: str  # empty: a job did not find it any more
    holders: list[DeviceHolder] = Field([])
    tenants: list[DeviceTenantCard] = Field([])

    @property
    def is_lost(self) -> bool:
        """Whether a job did not find it any more, and no worker has listed it since."""
        return not self.is_there and not self.worker

    @property
    def free_share(self) -> float:
        """How much of it is free."""
        return 1.0 - sum(holder.share for holder in self.holders)


class EventCard(Answer):
    at: float
    attempt: int
    message: str
    kind: str | None = None
    data: JsonObject | None = None


class MetricPoint(Answer):
    name: str
    step: int
    value: float


class EvaluationCard(Answer):
    expert: str
    domain: str
    split: HeldOutSplit
    block_size: int
    num_tokens: int
    num_counted: int | None = None  # of answers in conversations; None: all count
    perplexity: float
    accuracy: float | None = None  # the share of tokens that were the most probable ones; None: not counted
    created_at: float


class UserCard(Answer):
    """A user, without the token."""

    name: str
    role: str  # viewer | editor | admin
    created_at: float
    revoked_at: float | None = None


class AuditCard(Answer):
    """An entry of the audit log."""

    id: int
    at: float
    user: str
    action: str  # submit, add, change, delete, …
    kind: str  # of the object; of a job its kind, such as train-expert
    name: str
    details: str = ""
