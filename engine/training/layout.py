"""Which process trains which expert on which rows: processes are partitioned among experts (DEMix §3.4).

Pure arithmetic on expert keys and rows. A dense model is one key, so its layout is plain data parallelism.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import TrainingError
from engine.training.data import DomainText, PackedDomain


@dataclass(frozen=True)
class Layout:
    """`num_ranks` processes over experts, both in order; loads differ by at most one.

    With fewer processes than experts each process carries several experts; with more, each expert has a group of
    several processes, which share its rows out.
    """

    keys: tuple[str, ...]
    num_ranks: int

    def group(self, key: str) -> range:
        """The ranks that hold an expert; the first leads."""
        number = self.keys.index(key)
        first = number * self.num_ranks // len(self.keys)
        return range(first, max(first + 1, (number + 1) * self.num_ranks // len(self.keys)))

    def held(self, rank: int) -> tuple[str, ...]:
        """The experts that a process holds."""
        return tuple(key for key in self.keys if rank in self.group(key))

    def rows(self, key: str, rank: int, num_rows: int) -> range:
        """The rows of an expert that a process takes; no two processes take the same."""
        group = self.group(key)
        return range(rank - group.start, num_rows, len(group)) if rank in group else range(0)


def most_ranks(texts: Sequence[DomainText | PackedDomain], sequences_per_domain: int) -> int:
    """The number of processes up to which each has a row of every batch."""
    rows = _rows_by_key(texts, sequences_per_domain)
    return len(rows) * min(rows.values())


def layout_of(texts: Sequence[DomainText | PackedDomain], sequences_per_domain: int, num_ranks: int) -> Layout:
    """The layout for these texts; raises TrainingError when a process would have no row in a batch."""
    rows = _rows_by_key(texts, sequences_per_domain)
    layout = Layout(tuple(rows), num_ranks)
    for key, num_rows in rows.items():
        size, sequences = len(layout.group(key)), num_rows // sequences_per_domain
        if size > num_rows:
            names = ", ".join(f"“{text.name}”" for text in texts if text.expert == key)
            raise TrainingError(
                f"The processes that share {names} must be at most its {num_rows} sequences in a batch, but are {size} "
                "instead.",
                f"Choose at most {most_ranks(texts, sequences_per_domain)} processes, "
                f"or sequences_per_domain of at least {-(-size // sequences)}.",
            )
    return layout


def _rows_by_key(texts: Sequence[DomainText | PackedDomain], sequences_per_domain: int) -> dict[str, int]:
    """Rows of each expert in a batch, in the order of a batch."""
    rows: dict[str, int] = {}
    for text in texts:
        rows[text.expert] = rows.get(text.expert, 0) + sequences_per_domain
    return rows
