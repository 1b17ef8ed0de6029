"""Mixtures keep the gain of their calibration in fields; that of older ones is read from their notes, this once."""

from __future__ import annotations

import re

import sqlalchemy as sa

from alembic import op

revision = "0016"
down_revision = "0015"

MIXTURES = sa.table(
    "mixtures",
    sa.column("id", sa.String),
    sa.column("notes", sa.Text),
    sa.column("calibration", sa.JSON(none_as_null=True)),
)
JOBS = sa.table(
    "jobs",
    sa.column("kind", sa.String),
    sa.column("state", sa.String),
    sa.column("result", sa.JSON),
    sa.column("finished_at", sa.Double),
)
# The notes of a calibration that changed the gate, with either minus; older ones have “% perplexity”.
NUMBER = r"([+−-][\d.]+)"
GAIN = rf"{NUMBER} %(?: perplexity)? \[{NUMBER}, {NUMBER}\]"
CHANGED = re.compile(rf"^Evidence calibrated on .*, which changed .* by {GAIN}")


def upgrade() -> None:
    op.add_column("mixtures", sa.Column("calibration", sa.JSON(none_as_null=True)))
    _fill(op.get_bind())


def downgrade() -> None:
    with op.batch_alter_table("mixtures") as mixtures:
        mixtures.drop_column("calibration")


def _fill(connection: sa.Connection) -> None:
    ended = _when_calibrated(connection)
    for mixture in connection.execute(sa.select(MIXTURES.c.id, MIXTURES.c.notes)).all():
        if match := CHANGED.search(mixture.notes):
            value, low, high = (float(group.replace("−", "-")) for group in match.groups())
            gain = {"value": value, "low": low, "high": high, "at": ended.get(mixture.notes)}
            connection.execute(MIXTURES.update().where(MIXTURES.c.id == mixture.id).values(calibration=gain))


def _when_calibrated(connection: sa.Connection) -> dict[str, float]:
    """When a job wrote which notes."""
    done = sa.select(JOBS.c.result, JOBS.c.finished_at).where(JOBS.c.kind == "evaluate", JOBS.c.state == "done")
    return {
        str(job.result["calibration"]): job.finished_at
        for job in connection.execute(done).all()
        if job.result.get("calibration")
    }
