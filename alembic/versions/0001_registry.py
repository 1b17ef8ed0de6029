"""The registry's first tables: jobs, corpora, seed models, experts, mixtures, evaluations.

Constraints take their names from the convention in workbench.schema.base.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from alembic import op

revision = "0001"
down_revision = None

TABLES = [
    "jobs",
    "job_dependencies",
    "job_events",
    "metrics",
    "artifacts",
    "corpora",
    "domains",
    "seed_models",
    "experts",
    "mixtures",
    "mixture_members",
    "evaluations",
]


def upgrade() -> None:
    _jobs()
    _texts()
    _models()
    _mixtures()


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def _id() -> sa.Column[Any]:
    return sa.Column("id", sa.String(32), primary_key=True)


def _to(column: str, target: str, **options: Any) -> sa.Column[Any]:
    options.setdefault("nullable", False)
    return sa.Column(column, sa.String(32), sa.ForeignKey(target), **options)


def _text(column: str, length: int | None = None, **options: Any) -> sa.Column[Any]:
    options.setdefault("nullable", False)
    return sa.Column(column, sa.String(length) if length else sa.Text(), **options)


def _integer(column: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(column, sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, **options)


def _real(column: str, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(column, sa.Double(), nullable=nullable)


def _json(column: str) -> sa.Column[Any]:
    return sa.Column(column, sa.JSON(), nullable=False)


def _flag(column: str) -> sa.Column[Any]:
    return sa.Column(column, sa.Boolean(), nullable=False)


def _jobs() -> None:
    op.create_table(
        "jobs",
        _id(),
        _text("kind", 32),
        _text("title", 300),
        _json("spec"),
        _text("state", 16),
        _integer("priority"),
        _integer("attempt"),
        _integer("fence"),
        _text("owner", 120),
        _real("lease_until", nullable=True),
        _text("stop_requested", 16),
        _real("progress"),
        _text("progress_note"),
        _real("eta_seconds", nullable=True),
        _text("error"),
        _text("next_step"),
        _json("result"),
        _real("created_at"),
        _real("sent_at", nullable=True),
        _real("started_at", nullable=True),
        _real("finished_at", nullable=True),
    )
    op.create_index("ix_jobs_state", "jobs", ["state", "priority", "created_at"])
    _about_jobs()


def _about_jobs() -> None:
    op.create_table(
        "job_dependencies",
        _to("job_id", "jobs.id", primary_key=True),
        _to("after_id", "jobs.id", primary_key=True),
    )
    op.create_table(
        "job_events",
        _integer("id", primary_key=True, autoincrement=True),
        _to("job_id", "jobs.id", index=True),
        _real("at"),
        _integer("attempt"),
        _text("message"),
    )
    op.create_table(
        "metrics",
        _to("job_id", "jobs.id", primary_key=True),
        _text("name", 160, primary_key=True),
        _integer("step", primary_key=True, autoincrement=False),
        _real("value"),
    )


def _texts() -> None:
    op.create_table(
        "artifacts",
        _id(),
        _text("kind", 32),
        _text("key", 300, nullable=True, unique=True),
        _text("sha256", 64),
        _integer("size_bytes"),
        _to("job_id", "jobs.id", nullable=True),
        _real("created_at"),
    )
    op.create_table(
        "corpora",
        _id(),
        _text("name", 120, unique=True),
        _text("source"),
        _text("licence"),
        _json("report"),
        _to("job_id", "jobs.id", nullable=True),
        _real("created_at"),
    )
    op.create_table(
        "domains",
        _id(),
        _to("corpus_id", "corpora.id"),
        _text("name", 120, unique=True),
        _text("role", 16),
        _integer("num_documents"),
        _integer("num_words"),
        _integer("num_bytes"),
        _json("splits"),
        _text("data_sha256", 64),
        _to("artifact_id", "artifacts.id"),
        _text("folder", 16),
        _real("created_at"),
    )


def _models() -> None:
    op.create_table(
        "seed_models",
        _id(),
        _text("name", 120, unique=True),
        _text("source"),
        _text("family", 32),
        _json("config"),
        _integer("num_parameters"),
        _text("tokenizer_sha256", 64),
        _to("artifact_id", "artifacts.id"),
        _to("job_id", "jobs.id", nullable=True),
        _real("created_at"),
    )
    op.create_table(
        "experts",
        _id(),
        _text("name", 200, unique=True),
        _text("method", 32),
        _to("domain_id", "domains.id"),
        _to("seed_id", "seed_models.id", nullable=True),
        _to("parent_id", "experts.id", nullable=True),
        _to("base_id", "artifacts.id"),
        _to("artifact_id", "artifacts.id"),
        _text("tokenizer_sha256", 64),
        _text("data_sha256", 64),
        _integer("num_parameters"),
        _json("config"),
        _json("metrics"),
        _json("tags"),
        _text("notes"),
        _flag("enabled"),
        _text("code_version", 64),
        _to("job_id", "jobs.id", nullable=True),
        _real("created_at"),
    )


def _mixtures() -> None:
    op.create_table(
        "mixtures",
        _id(),
        _text("name", 120, unique=True),
        _json("gate"),
        _text("notes"),
        _real("created_at"),
    )
    op.create_table(
        "mixture_members",
        _to("mixture_id", "mixtures.id", primary_key=True),
        _to("expert_id", "experts.id", primary_key=True),
        _integer("position"),
        _real("weight"),
        _flag("active"),
    )
    op.create_table(
        "evaluations",
        _id(),
        _to("expert_id", "experts.id"),
        _to("domain_id", "domains.id"),
        _text("split", 16),
        _integer("block_size"),
        _integer("num_tokens"),
        _real("log_likelihood"),
        _to("artifact_id", "artifacts.id"),
        _to("job_id", "jobs.id", nullable=True),
        _real("created_at"),
        sa.UniqueConstraint("expert_id", "domain_id", "split", "block_size", "num_tokens"),
    )
