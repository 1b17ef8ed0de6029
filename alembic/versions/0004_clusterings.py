"""Clusterings and their clusters; a corpus may be made from one."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "clusterings",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("sources", sa.JSON, nullable=False),
        sa.Column("num_documents", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("num_fitted", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("seed_id", sa.String(32), sa.ForeignKey("seed_models.id", name="fk_clusterings_seed_id_seed_models")),
        sa.Column(
            "artifact_id",
            sa.String(32),
            sa.ForeignKey("artifacts.id", name="fk_clusterings_artifact_id_artifacts"),
            nullable=False,
        ),
        sa.Column("job_id", sa.String(32), sa.ForeignKey("jobs.id", name="fk_clusterings_job_id_jobs")),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_clusterings"),
        sa.UniqueConstraint("name", name="uq_clusterings_name"),
    )
    op.create_table(
        "clusters",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column(
            "clustering_id",
            sa.String(32),
            sa.ForeignKey("clusterings.id", name="fk_clusters_clustering_id_clusterings"),
            nullable=False,
        ),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("num_documents", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("terms", sa.JSON, nullable=False),
        sa.Column("representatives", sa.JSON, nullable=False),
        sa.Column("domain_id", sa.String(32), sa.ForeignKey("domains.id", name="fk_clusters_domain_id_domains")),
        sa.Column("stale", sa.Boolean, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_clusters"),
        sa.UniqueConstraint("clustering_id", "number", name="uq_clusters_clustering_id_number"),
        sa.UniqueConstraint("clustering_id", "name", name="uq_clusters_clustering_id_name"),
    )
    with op.batch_alter_table("corpora") as corpora:
        corpora.add_column(sa.Column("clustering_id", sa.String(32)))
        corpora.create_foreign_key("fk_corpora_clustering_id_clusterings", "clusterings", ["clustering_id"], ["id"])


def downgrade() -> None:
    with op.batch_alter_table("corpora") as corpora:
        corpora.drop_constraint("fk_corpora_clustering_id_clusterings", type_="foreignkey")
        corpora.drop_column("clustering_id")
    op.drop_table("clusters")
    op.drop_table("clusterings")
