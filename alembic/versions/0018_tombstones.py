"""Tombstones: ids of a shared store that are no longer artifacts of the registry, or not yet."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "tombstones",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("job_id", sa.String(32)),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstones")),
    )


def downgrade() -> None:
    op.drop_table("tombstones")
