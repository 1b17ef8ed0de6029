"""Fields of specs are named after what they hold: `local_source` of an import, `full_model` of an adaptation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from alembic import op

revision = "0010"
down_revision = "0009"

NEW_NAMES = {"import-corpus": ("found", "local_source"), "train-expert": ("whole", "full_model")}
JOBS = sa.table("jobs", sa.column("id", sa.String), sa.column("kind", sa.String), sa.column("spec", sa.JSON))
EXPERTS = sa.table("experts", sa.column("id", sa.String), sa.column("config", sa.JSON))


def upgrade() -> None:
    _rename(NEW_NAMES)


def downgrade() -> None:
    _rename({kind: (new, old) for kind, (old, new) in NEW_NAMES.items()})


def _rename(fields: Mapping[str, tuple[str, str]]) -> None:
    """Renames the fields in the specs of jobs, in the imports of replications, and in the configs of experts."""
    connection = op.get_bind()
    for job in connection.execute(sa.select(JOBS)).all():
        spec = _rename_field(job.spec, *fields[job.kind]) if job.kind in fields else job.spec
        if isinstance(imports := spec.get("imports"), list):
            spec = {**spec, "imports": [_rename_field(text, *fields["import-corpus"]) for text in imports]}
        if spec != job.spec:
            connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(spec=spec))
    for expert in connection.execute(sa.select(EXPERTS)).all():
        config = _rename_field(expert.config, *fields["train-expert"])
        if config != expert.config:
            connection.execute(EXPERTS.update().where(EXPERTS.c.id == expert.id).values(config=config))


def _rename_field(data: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The same values, in their order, with one key renamed."""
    return {new if name == old else name: value for name, value in data.items()}
