"""Runs migrations on the connection that workbench.registry.database.migrate has begun: all of them or none."""

import workbench.schema.tables  # noqa: F401 (fills the metadata)
from alembic import context
from workbench.schema.base import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a table by making it again
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
