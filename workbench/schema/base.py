"""What every table of the registry has: the naming of constraints, the types of columns, ids and times."""

from __future__ import annotations

import time
import uuid
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, Double, Integer, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


def new_id() -> str:
    """A random id of 32 hexadecimal digits."""
    return uuid.uuid4().hex


class Base(DeclarativeBase):
    """The declarative base with a naming convention, which migrations need."""

    metadata = MetaData(naming_convention=NAMING)
    noun: ClassVar[str] = "row"  # what people call one
    type_annotation_map = {  # noqa: RUF012
        int: BigInteger().with_variant(Integer(), "sqlite"),  # bytes and parameters outgrow 32 bits
        float: Double,
        dict[str, Any]: JSON,
        list[Any]: JSON,
    }


class WithId:
    """A random id as the primary key."""

    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id, sort_order=-1)


class Dated:
    """The time at which a row was made."""

    created_at: Mapped[float] = mapped_column(default=time.time)
