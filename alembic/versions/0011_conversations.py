"""Domains of conversations, and how many of an evaluation's tokens count; of those stored before, all do."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    with op.batch_alter_table("domains") as domains:
        domains.add_column(sa.Column("format", sa.String(16), nullable=False, server_default="text"))
    with op.batch_alter_table("evaluations") as evaluations:
        evaluations.add_column(sa.Column("num_counted", sa.BigInteger().with_variant(sa.Integer(), "sqlite")))


def downgrade() -> None:
    with op.batch_alter_table("evaluations") as evaluations:
        evaluations.drop_column("num_counted")
    with op.batch_alter_table("domains") as domains:
        domains.drop_column("format")
