"""Experts trained on several domains at once (the dense baselines), and reports: certificates and replications."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("experts") as experts:
        experts.alter_column("domain_id", existing_type=sa.String(32), nullable=True)
    op.create_table(
        "reports",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("title", sa.String(300), nullable=False),
        sa.Column("about_id", sa.String(32)),
        sa.Column("findings", sa.JSON, nullable=False),
        sa.Column("artifact_id", sa.String(32), sa.ForeignKey("artifacts.id", name="fk_reports_artifact_id_artifacts")),
        sa.Column("job_id", sa.String(32), sa.ForeignKey("jobs.id", name="fk_reports_job_id_jobs")),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_reports"),
    )
    op.create_index("ix_reports_kind", "reports", ["kind"])
    op.create_index("ix_reports_about_id", "reports", ["about_id"])


def downgrade() -> None:
    op.drop_table("reports")
    with op.batch_alter_table("experts") as experts:
        experts.alter_column("domain_id", existing_type=sa.String(32), nullable=False)
