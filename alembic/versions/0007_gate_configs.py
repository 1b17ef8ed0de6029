"""A gate is stored only with its own settings; until here each held those of all gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from alembic import op

revision = "0007"
down_revision = "0006"

DEFAULTS: dict[str, Any] = {
    "kind": "posterior",
    "evidence": "prefix",
    "newest_weight": 0.7,
    "update_every": 256,
    "top_k": None,
    "clustering": None,
    "temperature": 0.1,
    "distance_power": 2.0,
    "freeze_after": None,
}
_DISTANCES = ("clustering", "temperature", "distance_power", "freeze_after")
SETTINGS = {
    "posterior": ("top_k", "evidence"),
    "updating": ("top_k", "evidence", "newest_weight", "update_every"),
    "fixed": ("top_k",),
    "cluster": ("top_k", *_DISTANCES),
    "cluster-posterior": ("top_k", *_DISTANCES, "evidence"),
}
MIXTURES = sa.table("mixtures", sa.column("id", sa.String), sa.column("gate", sa.JSON))
JOBS = sa.table("jobs", sa.column("id", sa.String), sa.column("kind", sa.String), sa.column("spec", sa.JSON))

Gate = dict[str, Any]


def own_settings(gate: Gate) -> Gate:
    """The kind, and the settings of that gate; of a gate from elsewhere all that is stored."""
    full = DEFAULTS | gate
    names = SETTINGS.get(full["kind"])
    return gate if names is None else {"kind": full["kind"], **{name: full[name] for name in names}}


def all_settings(gate: Gate) -> Gate:
    """The settings of all gates."""
    return DEFAULTS | gate


def upgrade() -> None:
    _rewrite(own_settings)


def downgrade() -> None:
    _rewrite(all_settings)


def _rewrite(change: Callable[[Gate], Gate]) -> None:
    connection = op.get_bind()
    for id, gate in connection.execute(sa.select(MIXTURES.c.id, MIXTURES.c.gate)).all():
        connection.execute(MIXTURES.update().where(MIXTURES.c.id == id).values(gate=change(gate or {})))
    composing = sa.select(JOBS.c.id, JOBS.c.spec).where(JOBS.c.kind == "make-mixture")
    for id, spec in connection.execute(composing).all():
        gate = spec.get("gate") or {}
        if spec.get("clustering"):  # such a job has always made a cluster gate, with the settings next to it
            gate = gate | {"kind": "cluster"}
        connection.execute(JOBS.update().where(JOBS.c.id == id).values(spec=spec | {"gate": change(gate)}))
