"""Device shares: jobs that lease a part of a GPU. Leases from before are of whole ones."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0020"
down_revision = "0019"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "device_shares",
        sa.Column("host", sa.String(120), nullable=False),
        sa.Column("uuid", sa.String(64), nullable=False),
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("fence", BIG, nullable=False),
        sa.Column("share", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("host", "uuid", "job_id", name=op.f("pk_device_shares")),
    )


def downgrade() -> None:
    op.drop_table("device_shares")
