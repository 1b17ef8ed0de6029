"""Job events get a kind and data, failed jobs the code of their failure, running jobs the range of their ETA.

Before, all of these were only in sentences. This is the one place that still reads them from there.
"""

from __future__ import annotations

import re

import sqlalchemy as sa

from alembic import op

revision = "0009"
down_revision = "0008"

_PARTS = re.compile(r"Its gates weigh the backbone and the parts (?P<names>.*)\.")
_LINE = re.compile(r", line (?P<line>\d{1,12})")

_events = sa.table("job_events", sa.column("id"), sa.column("message"), sa.column("kind"), sa.column("data", sa.JSON()))
_jobs = sa.table(
    "jobs",
    sa.column("id"),
    sa.column("kind"),
    sa.column("state"),
    sa.column("error"),
    sa.column("eta_seconds"),
    sa.column("failure", sa.JSON()),
)


def upgrade() -> None:
    with op.batch_alter_table("job_events") as events:
        events.add_column(sa.Column("kind", sa.String(32)))
        events.add_column(sa.Column("data", sa.JSON))
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("eta_soonest", sa.Double))
        jobs.add_column(sa.Column("eta_latest", sa.Double))
        jobs.add_column(sa.Column("failure", sa.JSON))
    _read_events()
    _read_failures()
    # The note of a job that runs still names its ETA; the next heartbeat writes both again.
    op.execute(sa.update(_jobs).where(_jobs.c.state == "running").values(eta_seconds=None))


def _read_events() -> None:
    connection = op.get_bind()
    connection.execute(
        sa.update(_events).where(_events.c.message.startswith("Checkpoint at step")).values(kind="checkpoint")
    )
    named = sa.select(_events.c.id, _events.c.message).where(_events.c.message.startswith("Its gates weigh"))
    for id, message in connection.execute(named).all():
        if match := _PARTS.fullmatch(message):
            parts = match["names"].split(", ")
            connection.execute(sa.update(_events).where(_events.c.id == id).values(kind="parts", data={"parts": parts}))


def _read_failures() -> None:
    """Imports that failed at a record: the only failures that anything was read from."""
    connection = op.get_bind()
    failed = sa.select(_jobs.c.id, _jobs.c.error).where(_jobs.c.kind == "import-corpus", _jobs.c.error != "")
    for id, error in connection.execute(failed).all():
        if match := _LINE.search(error):
            failure = {"code": "corpus_error", "line": int(match["line"])}
            connection.execute(sa.update(_jobs).where(_jobs.c.id == id).values(failure=failure))


def downgrade() -> None:
    with op.batch_alter_table("jobs") as jobs:
        for column in ("failure", "eta_latest", "eta_soonest"):
            jobs.drop_column(column)
    with op.batch_alter_table("job_events") as events:
        for column in ("data", "kind"):
            events.drop_column(column)
