"""Priors as things of their own: given by hand, or estimated on held-out text."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "priors",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("shares", sa.JSON, nullable=False),
        sa.Column("source", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_priors"),
        sa.UniqueConstraint("name", name="uq_priors_name"),
    )


def downgrade() -> None:
    op.drop_table("priors")
