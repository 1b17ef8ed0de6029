"""Devices: the GPUs of the workers' hosts with the jobs that lease them, and API servers that share them."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0017"
down_revision = "0016"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "devices",
        sa.Column("host", sa.String(120), nullable=False),
        sa.Column("uuid", sa.String(64), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("memory_bytes", BIG, nullable=False),
        sa.Column("worker", sa.String(120), nullable=False),
        sa.Column("seen_until", sa.Double(), nullable=False),
        sa.Column("job_id", sa.String(32)),
        sa.Column("fence", BIG, nullable=False),
        sa.PrimaryKeyConstraint("host", "uuid", name=op.f("pk_devices")),
    )
    op.create_table(
        "device_tenants",
        sa.Column("host", sa.String(120), nullable=False),
        sa.Column("uuid", sa.String(64), nullable=False),
        sa.Column("tenant", sa.String(200), nullable=False),
        sa.Column("most_bytes", BIG, nullable=False),
        sa.Column("seen_until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("host", "uuid", "tenant", name=op.f("pk_device_tenants")),
    )


def downgrade() -> None:
    op.drop_table("device_tenants")
    op.drop_table("devices")
