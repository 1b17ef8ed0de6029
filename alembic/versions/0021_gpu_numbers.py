"""Numbers of GPUs apart from their addresses, which name them by UUID from now on; those from before were numbers."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    with op.batch_alter_table("devices") as devices:
        devices.add_column(sa.Column("number", sa.String(64), nullable=False, server_default=""))
    op.execute("UPDATE devices SET number = address")


def downgrade() -> None:
    op.execute("UPDATE devices SET address = number WHERE address = ''")
    with op.batch_alter_table("devices") as devices:
        devices.drop_column("number")
