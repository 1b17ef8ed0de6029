"""Comparisons of answers, with what makes each again, and votes on them."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0013"
down_revision = "0012"

BIG_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "comparisons",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("messages", sa.JSON(), nullable=False),
        sa.Column("has_text", sa.Boolean(), nullable=False),
        sa.Column("domain", sa.String(200), nullable=False),
        sa.Column("domain_source", sa.String(16), nullable=False),
        sa.Column("domain_weights", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparisons")),
    )
    op.create_index(op.f("ix_comparisons_created_at"), "comparisons", ["created_at"])
    op.create_table(
        "compared_answers",
        sa.Column("comparison_id", sa.String(32), nullable=False),
        sa.Column("position", BIG_INTEGER, nullable=False, autoincrement=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("variant", sa.String(300), nullable=False),
        sa.Column("setup_sha256", sa.String(64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("tokens", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["comparisons.id"], name=op.f("fk_compared_answers_comparison_id_comparisons")
        ),
        sa.PrimaryKeyConstraint("comparison_id", "position", name=op.f("pk_compared_answers")),
    )
    op.create_table(
        "votes",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("comparison_id", sa.String(32), nullable=False),
        sa.Column("first", BIG_INTEGER, nullable=False),
        sa.Column("second", BIG_INTEGER, nullable=False),
        sa.Column("choice", sa.String(16), nullable=False),
        sa.Column("is_blind", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["comparison_id"], ["comparisons.id"], name=op.f("fk_votes_comparison_id_comparisons")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_votes")),
        sa.UniqueConstraint("comparison_id", "first", "second", name=op.f("uq_votes_comparison_id_first_second")),
    )


def downgrade() -> None:
    op.drop_table("votes")
    op.drop_table("compared_answers")
    op.drop_index(op.f("ix_comparisons_created_at"), table_name="comparisons")
    op.drop_table("comparisons")
