"""Aliases, such as law@production: names that mean an expert or a mixture, and can be moved to another."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "aliases",
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("expert_id", sa.String(32), nullable=True),
        sa.Column("mixture_id", sa.String(32), nullable=True),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.CheckConstraint("(expert_id IS NULL) <> (mixture_id IS NULL)", name=op.f("ck_aliases_one_target")),
        sa.ForeignKeyConstraint(["expert_id"], ["experts.id"], name=op.f("fk_aliases_expert_id_experts")),
        sa.ForeignKeyConstraint(["mixture_id"], ["mixtures.id"], name=op.f("fk_aliases_mixture_id_mixtures")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_aliases")),
    )


def downgrade() -> None:
    op.drop_table("aliases")
