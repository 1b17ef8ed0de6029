"""Which expert each row of a batch takes, for the forward pass under way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rows:
    """The experts of a batch: `num_rows[i]` consecutive rows take expert `keys[i]`."""

    keys: tuple[str, ...]
    num_rows: tuple[int, ...]

    @classmethod
    def one_each(cls, keys: Sequence[str]) -> Rows:
        """One row for each expert: E copies of one prompt."""
        return cls(tuple(keys), (1,) * len(keys))

    @classmethod
    def all_to(cls, key: str, num_rows: int) -> Rows:
        """Every row takes the same expert."""
        return cls((key,), (num_rows,))


_rows: ContextVar[Rows] = ContextVar("rows")
_compiled_rows = Rows((), ())


def current_rows() -> Rows:
    """The experts of the rows that the forward pass under way computes."""
    if torch.compiler.is_compiling():  # torch.compile cannot look into a context variable
        return _compiled_rows
    return _rows.get()


def are_current(rows: Rows) -> bool:
    """Whether the forward pass under way computes these rows."""
    return _rows.get(None) == rows


def compile_for(rows: Rows) -> None:
    """Sets the rows that layers are compiled for from now on; they must be called for no others."""
    global _compiled_rows
    _compiled_rows = rows


@contextmanager
def with_rows(rows: Rows) -> Iterator[None]:
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


def set_rows(rows: Rows) -> None:
    """Sets other rows for the rest of the forward pass under way."""
    _rows.set(rows)


def rows_again() -> AbstractContextManager[None]:
    """Sets the rows of the forward pass under way once more later, as when a layer is computed again."""
    rows = _rows.get(None)
    return nullcontext() if rows is None else with_rows(rows)
