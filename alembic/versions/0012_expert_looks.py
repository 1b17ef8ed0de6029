"""Every expert has a colour number and a mark; those stored before get theirs in the order in which they were made."""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import count, product

import sqlalchemy as sa

from alembic import op

revision = "0012"
down_revision = "0011"

BIG_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
EXPERTS = sa.table(
    "experts",
    sa.column("id", sa.String),
    sa.column("name", sa.String),
    sa.column("enabled", sa.Boolean),
    sa.column("created_at", sa.Float),
    sa.column("colour_number", sa.Integer),
    sa.column("mark", sa.String),
)


def upgrade() -> None:
    with op.batch_alter_table("experts") as experts:
        experts.add_column(sa.Column("colour_number", BIG_INTEGER))
        experts.add_column(sa.Column("mark", sa.String(8)))
    _fill(op.get_bind())
    with op.batch_alter_table("experts") as experts:
        experts.alter_column("colour_number", existing_type=BIG_INTEGER, nullable=False)
        experts.alter_column("mark", existing_type=sa.String(8), nullable=False)
        experts.create_unique_constraint("uq_experts_mark", ["mark"])


def downgrade() -> None:
    with op.batch_alter_table("experts") as experts:
        experts.drop_constraint("uq_experts_mark", type_="unique")
        experts.drop_column("mark")
        experts.drop_column("colour_number")


def _fill(connection: sa.Connection) -> None:
    enabled, used, marks = set[int](), set[int](), set[str]()
    for expert in connection.execute(sa.select(EXPERTS).order_by(EXPERTS.c.created_at, EXPERTS.c.id)).all():
        number = next((one for one in range(8) if one not in enabled), None)
        if number is None:
            number = next(one for one in count(8) if one not in used)
        mark = next(one for one in _marks(expert.name) if one not in marks)
        connection.execute(EXPERTS.update().where(EXPERTS.c.id == expert.id).values(colour_number=number, mark=mark))
        used.add(number)
        marks.add(mark)
        if expert.enabled:
            enabled.add(number)


def _marks(name: str) -> Iterator[str]:
    """As workbench/schema/names.py chose them when this was written."""
    last = name.rpartition("/")[2].rpartition(":")[2]
    signs = [sign for sign in last if sign.isalnum() and len(sign.upper()) == len(sign.lower()) == 1]
    if signs:
        yield from (signs[0].upper() + sign.lower() for sign in [*signs[1:], *string.digits])
    for length in range(2, 8):
        every = product(string.ascii_uppercase + string.digits, repeat=length)
        yield from (first + "".join(rest).lower() for first, *rest in every)
