"""The registry's tables: all objects with their files and provenance.

Names are data and unique within their table; ids are random, and only ids become paths.
Times are seconds since 1970 (UTC).
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ForeignKey,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from engine.text.split_names import HeldOutSplit
from workbench.schema import job_tables as job_tables  # which foreign keys name
from workbench.schema.base import Base, Dated, WithId, new_id


class RegistryIdentity(Base):
    """The random id of this registry: one row. A moved or copied database keeps it.

    The artifacts folder names the registry that may remove artifacts.
    """

    __tablename__ = "registry_identity"
    name: Mapped[str] = mapped_column(String(16), primary_key=True, default="registry")  # so that there is only one
    id: Mapped[str] = mapped_column(String(32), default=new_id)


class Artifact(WithId, Dated, Base):
    """A folder of files in storage under its id, with the SHA-256 of its manifest.

    `key` names an artifact by its inputs, so that it is made once (such as `tokens:<domain id>:<tokenizer hash>`).
    """

    __tablename__, noun = "artifacts", "artifact"
    kind: Mapped[str] = mapped_column(String(32))
    key: Mapped[str | None] = mapped_column(String(300), unique=True)
    sha256: Mapped[str] = mapped_column(String(64))
    size_bytes: Mapped[int] = mapped_column(default=0)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))


class Tombstone(Base):
    """An id of the shared store that is no longer, or not yet, an artifact of this registry; see `store.tombstones`."""

    __tablename__ = "tombstones"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    job_id: Mapped[str | None] = mapped_column(String(32))  # no reference: it outlives the job's row
    at: Mapped[float]


class Corpus(WithId, Dated, Base):
    """One import of text: its source and the refused records."""

    __tablename__, noun = "corpora", "corpus"
    name: Mapped[str] = mapped_column(String(120), unique=True)
    source: Mapped[str] = mapped_column(Text)
    licence: Mapped[str] = mapped_column(Text, default="")
    report: Mapped[dict[str, Any]] = mapped_column(default=dict)
    clustering_id: Mapped[str | None] = mapped_column(ForeignKey("clusterings.id"))  # its domains are clusters of it
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))

    domains: Mapped[list[Domain]] = relationship(back_populates="corpus")


class Domain(WithId, Dated, Base):
    """Documents under one label, split into train, dev and test by content."""

    __tablename__, noun = "domains", "domain"
    corpus_id: Mapped[str] = mapped_column(ForeignKey("corpora.id"))
    name: Mapped[str] = mapped_column(String(120), unique=True)
    role: Mapped[str] = mapped_column(String(16), default="train")  # train | novel
    format: Mapped[str] = mapped_column(String(16), default="text", server_default="text")  # text | chat
    num_documents: Mapped[int]
    num_words: Mapped[int]
    num_bytes: Mapped[int]
    splits: Mapped[dict[str, Any]] = mapped_column(default=dict)  # split -> {documents, words, bytes}
    data_sha256: Mapped[str] = mapped_column(String(64))
    artifact_id: Mapped[str] = mapped_column(ForeignKey("artifacts.id"))
    folder: Mapped[str] = mapped_column(String(16), default="0")  # its place within the artifact

    corpus: Mapped[Corpus] = relationship(back_populates="domains")
    artifact: Mapped[Artifact] = relationship()


class SeedModel(WithId, Dated, Base):
    """A full decoder with its tokenizer that experts start from.

    `source` is fresh, expert:NAME, folder:PATH, file:PATH, package:NAME==VERSION, hub:NAME@COMMIT or packed.
    """

    __tablename__, noun = "seed_models", "seed model"
    name: Mapped[str] = mapped_column(String(120), unique=True)
    source: Mapped[str] = mapped_column(Text)
    family: Mapped[str] = mapped_column(String(32))
    config: Mapped[dict[str, Any]] = mapped_column(default=dict)
    num_parameters: Mapped[int]
    tokenizer_sha256: Mapped[str] = mapped_column(String(64))
    artifact_id: Mapped[str] = mapped_column(ForeignKey("artifacts.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))

    artifact: Mapped[Artifact] = relationship()


class Clustering(WithId, Dated, Base):
    """Clusters of the documents of some domains, and the embedder of their centres.

    The artifact holds centres, embedder, the cluster of each document and the map; an edit replaces it.
    """

    __tablename__, noun = "clusterings", "clustering"
    name: Mapped[str] = mapped_column(String(120), unique=True)
    config: Mapped[dict[str, Any]] = mapped_column(default=dict)  # {"clusters": ClusterConfig, "embedder": {"kind", …}}
    sources: Mapped[list[Any]] = mapped_column(default=list)  # [{"id", "name", "data_sha256"}] of the domains
    num_documents: Mapped[int]
    num_fitted: Mapped[int]
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)  # also "former_domains": cluster ids by domain ids
    seed_id: Mapped[str | None] = mapped_column(ForeignKey("seed_models.id"))  # whose hidden states embed, if any
    artifact_id: Mapped[str] = mapped_column(ForeignKey("artifacts.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))

    artifact: Mapped[Artifact] = relationship()
    seed: Mapped[SeedModel | None] = relationship()
    clusters: Mapped[list[Cluster]] = relationship(
        back_populates="clustering", order_by="Cluster.number", cascade="all, delete-orphan"
    )


class Cluster(WithId, Base):
    """One cluster: its number is that of its centre; name and notes are for people.

    `domain_id` is the domain that was made of its documents; `stale` is set when they have changed since.
    """

    __tablename__, noun = "clusters", "cluster"
    __table_args__ = (UniqueConstraint("clustering_id", "number"), UniqueConstraint("clustering_id", "name"))
    clustering_id: Mapped[str] = mapped_column(ForeignKey("clusterings.id"))
    number: Mapped[int]
    name: Mapped[str] = mapped_column(String(120))
    num_documents: Mapped[int]
    terms: Mapped[list[Any]] = mapped_column(default=list)  # the strongest first
    representatives: Mapped[list[Any]] = mapped_column(default=list)  # document ids, the nearest first
    domain_id: Mapped[str | None] = mapped_column(ForeignKey("domains.id"))
    stale: Mapped[bool] = mapped_column(default=False)
    notes: Mapped[str] = mapped_column(Text, default="")

    clustering: Mapped[Clustering] = relationship(back_populates="clusters")
    domain: Mapped[Domain | None] = relationship()


class Expert(WithId, Dated, Base):
    """The parameters that a domain trained, with their provenance.

    `base` holds what the expert needs (for DEMix: the shared parameters). Experts with one tokenizer can be mixed.
    """

    __tablename__, noun = "experts", "expert"
    __table_args__ = (UniqueConstraint("mark", name="uq_experts_mark"),)
    name: Mapped[str] = mapped_column(String(200), unique=True)  # MIXTURE/DOMAIN
    method: Mapped[str] = mapped_column(String(32))  # a choice of TrainJoint, “mode”, or “average”
    domain_id: Mapped[str | None] = mapped_column(ForeignKey("domains.id"))  # none: trained on several
    seed_id: Mapped[str | None] = mapped_column(ForeignKey("seed_models.id"))
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("experts.id"))
    base_id: Mapped[str] = mapped_column(ForeignKey("artifacts.id"))
    artifact_id: Mapped[str] = mapped_column(ForeignKey("artifacts.id"))
    tokenizer_sha256: Mapped[str] = mapped_column(String(64))
    data_sha256: Mapped[str] = mapped_column(String(64))
    num_parameters: Mapped[int]
    config: Mapped[dict[str, Any]] = mapped_column(default=dict)
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    tags: Mapped[list[Any]] = mapped_column(default=list)
    notes: Mapped[str] = mapped_column(Text, default="")
    enabled: Mapped[bool] = mapped_column(default=True)
    colour_number: Mapped[int]  # as workbench.formatting.palette.look_of reads it; set once, as the mark is
    mark: Mapped[str] = mapped_column(String(8))  # two characters, more where all are taken
    code_version: Mapped[str] = mapped_column(String(64), default="")
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))

    domain: Mapped[Domain | None] = relationship()
    seed: Mapped[SeedModel | None] = relationship()
    parent: Mapped[Expert | None] = relationship(remote_side="Expert.id")
    base: Mapped[Artifact] = relationship(foreign_keys=[base_id])
    artifact: Mapped[Artifact] = relationship(foreign_keys=[artifact_id])


class Mixture(WithId, Dated, Base):
    """A named composition of experts that share a tokenizer, with its gate."""

    __tablename__, noun = "mixtures", "mixture"
    name: Mapped[str] = mapped_column(String(120), unique=True)
    gate: Mapped[dict[str, Any]] = mapped_column(default=dict)  # as workbench.specs.gates.dump_gate gives it
    notes: Mapped[str] = mapped_column(Text, default="")
    calibration: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))  # cards.CalibratedGain

    members: Mapped[list[MixtureMember]] = relationship(
        back_populates="mixture", order_by="MixtureMember.position", cascade="all, delete-orphan"
    )


class MixtureMember(Base):
    """An expert in a mixture: its position, its prior (or fixed) weight, and whether it is active."""

    __tablename__, noun = "mixture_members", "member of a mixture"
    mixture_id: Mapped[str] = mapped_column(ForeignKey("mixtures.id"), primary_key=True)
    expert_id: Mapped[str] = mapped_column(ForeignKey("experts.id"), primary_key=True)
    position: Mapped[int]
    weight: Mapped[float] = mapped_column(default=1.0)
    active: Mapped[bool] = mapped_column(default=True)

    mixture: Mapped[Mixture] = relationship(back_populates="members")
    expert: Mapped[Expert] = relationship()

    @property
    def takes_part(self) -> bool:
        """Whether the expert has weight in the mixture: it is active here, enabled in the registry, and above 0."""
        return self.active and self.expert.enabled and self.weight > 0


class Prior(WithId, Dated, Base):
    """A named prior over experts: one share for each, set by hand or estimated on held-out text."""

    __tablename__, noun = "priors", "prior"
    name: Mapped[str] = mapped_column(String(120), unique=True)
    shares: Mapped[dict[str, Any]] = mapped_column(default=dict)  # expert id -> share; together 1
    source: Mapped[dict[str, Any]] = mapped_column(default=dict)  # mixture, domain, split, blocks …; empty: by hand


class Alias(Base):
    """A name such as law@production that means one expert or one mixture, until it is moved to another."""

    __tablename__, noun = "aliases", "alias"
    __table_args__ = (CheckConstraint("(expert_id IS NULL) <> (mixture_id IS NULL)", name="one_target"),)
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert_id: Mapped[str | None] = mapped_column(ForeignKey("experts.id"))
    mixture_id: Mapped[str | None] = mapped_column(ForeignKey("mixtures.id"))
    updated_at: Mapped[float] = mapped_column(default=time.time)

    expert: Mapped[Expert | None] = relationship()
    mixture: Mapped[Mixture | None] = relationship()


class SavedView(Base):
    """A name of an address in the studio."""

    __tablename__, noun = "saved_views", "view"
    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    address: Mapped[str] = mapped_column(Text)  # /experts?method=lora
    updated_at: Mapped[float] = mapped_column(default=time.time)


class User(WithId, Dated, Base):
    """A user of a team: a role, and the hash of a token. Revoked ones stay listed."""

    __tablename__, noun = "users", "user"
    name: Mapped[str] = mapped_column(String(120), unique=True)
    role: Mapped[str] = mapped_column(String(16))  # viewer | editor | admin
    token_sha256: Mapped[str] = mapped_column(String(64), unique=True)
    revoked_at: Mapped[float | None]


class AuditEntry(Base):
    """Who did what to which object. The database refuses to change or delete an entry."""

    __tablename__ = "audit_entries"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float] = mapped_column(default=time.time)
    user: Mapped[str] = mapped_column(String(200))  # a name, which outlives the user
    action: Mapped[str] = mapped_column(String(32))  # submit, add, change, delete, …
    kind: Mapped[str] = mapped_column(String(32))  # expert, mixture, …; of a job its kind
    name: Mapped[str] = mapped_column(String(300))
    details: Mapped[str] = mapped_column(Text, default="")


class Evaluation(WithId, Dated, Base):
    """One expert's scores on one split of one domain; the artifact holds the score of every token."""

    __tablename__, noun = "evaluations", "evaluation"
    __table_args__ = (UniqueConstraint("expert_id", "domain_id", "split", "block_size", "num_tokens"),)
    expert_id: Mapped[str] = mapped_column(ForeignKey("experts.id"))
    domain_id: Mapped[str] = mapped_column(ForeignKey("domains.id"))
    split: Mapped[HeldOutSplit] = mapped_column(String(16))
    block_size: Mapped[int]
    num_tokens: Mapped[int]
    num_counted: Mapped[int | None]  # tokens that count, of conversations those of answers; None: all
    log_likelihood: Mapped[float]  # nats, summed over the tokens that count
    num_correct: Mapped[int | None]  # of these the most probable ones; None: scored before they were counted
    artifact_id: Mapped[str] = mapped_column(ForeignKey("artifacts.id"))
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))

    expert: Mapped[Expert] = relationship()
    domain: Mapped[Domain] = relationship()
    artifact: Mapped[Artifact] = relationship()


class Report(WithId, Dated, Base):
    """A permanent result of a job: a certificate, or the verdicts on a paper's claims.

    `about_id` is the expert or mixture that it is about; a report outlives both.
    """

    __tablename__, noun = "reports", "report"
    kind: Mapped[str] = mapped_column(String(32), index=True)
    title: Mapped[str] = mapped_column(String(300))
    about_id: Mapped[str | None] = mapped_column(String(32), index=True)
    findings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    artifact_id: Mapped[str | None] = mapped_column(ForeignKey("artifacts.id"))  # its pages, where it has some
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"))

    artifact: Mapped[Artifact | None] = relationship()


class Comparison(WithId, Base):
    """One prompt with the answers of up to four models, side by side. Without its text it only holds votes together."""

    __tablename__, noun = "comparisons", "comparison"
    prompt: Mapped[str] = mapped_column(Text, default="")  # of a conversation its last message
    messages: Mapped[list[Any]] = mapped_column(default=list)  # [{"role", "content"}]; empty for a completion
    has_text: Mapped[bool] = mapped_column(default=True)  # False: prompt and answers are not stored, or no longer
    domain: Mapped[str] = mapped_column(String(200), default="")  # a name, which outlives the domain; empty: none
    domain_source: Mapped[str] = mapped_column(String(16), default="")  # user | posterior | empty
    domain_weights: Mapped[dict[str, Any]] = mapped_column(default=dict)  # domain -> weight after the prompt
    created_at: Mapped[float] = mapped_column(default=time.time, index=True)

    answers: Mapped[list[ComparedAnswer]] = relationship(
        order_by="ComparedAnswer.position", cascade="all, delete-orphan"
    )
    votes: Mapped[list[Vote]] = relationship(order_by="Vote.created_at", cascade="all, delete-orphan")


class ComparedAnswer(Base):
    """One model's answer in a comparison, with what makes it again."""

    __tablename__ = "compared_answers"
    comparison_id: Mapped[str] = mapped_column(ForeignKey("comparisons.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # 0 is A
    model: Mapped[str] = mapped_column(String(200))  # a name, which outlives the mixture or expert
    variant: Mapped[str] = mapped_column(String(300), default="")  # how the request differed from the stored model
    setup_sha256: Mapped[str] = mapped_column(String(64))  # of files, weights and gate
    text: Mapped[str] = mapped_column(Text, default="")
    manifest: Mapped[dict[str, Any]] = mapped_column(default=dict)
    tokens: Mapped[dict[str, Any]] = mapped_column(default=dict)  # ids of prompt and answer, experts and their weights


class Vote(WithId, Dated, Base):
    """Which of two answers of a comparison is better; one vote for each pair."""

    __tablename__ = "votes"
    __table_args__ = (UniqueConstraint("comparison_id", "first", "second"),)
    comparison_id: Mapped[str] = mapped_column(ForeignKey("comparisons.id"))
    first: Mapped[int]  # position of an answer, smaller than `second`
    second: Mapped[int]
    choice: Mapped[str] = mapped_column(String(16))  # first | second | tie | both_bad
    is_blind: Mapped[bool] = mapped_column(default=False)  # whether the names were hidden until the vote
