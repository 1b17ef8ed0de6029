"""The random id of a registry: an artifacts folder names the one that may sweep it."""

from __future__ import annotations

import uuid

import sqlalchemy as sa

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    identity = op.create_table(
        "registry_identity",
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_registry_identity"),
    )
    # Committed with the table, so that no folder ever names an id which a cut-off transaction took back.
    op.bulk_insert(identity, [{"name": "registry", "id": uuid.uuid4().hex}])


def downgrade() -> None:
    op.drop_table("registry_identity")
