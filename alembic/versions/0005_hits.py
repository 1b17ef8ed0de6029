"""How many tokens of an evaluation were the most probable ones; unknown of those that were stored before."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    with op.batch_alter_table("evaluations") as evaluations:
        evaluations.add_column(sa.Column("num_correct", sa.BigInteger().with_variant(sa.Integer(), "sqlite")))


def downgrade() -> None:
    with op.batch_alter_table("evaluations") as evaluations:
        evaluations.drop_column("num_correct")
