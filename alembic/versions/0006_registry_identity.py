"""The random id of a registry, made when it first uses an artifacts folder: only its own registry sweeps a folder."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "registry_identity",
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_registry_identity"),
    )


def downgrade() -> None:
    op.drop_table("registry_identity")
