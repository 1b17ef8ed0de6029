"""The names in the registry that begin with a text, for the completion of a command line."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.tables import Clustering, Comparison, Corpus, Domain, Expert, Job, Mixture, Prior, Report, SeedModel

NameKind = Literal[
    "corpus", "domain", "seed", "expert", "mixture", "prior", "clustering", "job", "report", "comparison"
]

_ID_DIGITS = 8  # as lists show ids
_COLUMNS = {
    "corpus": Corpus.name,
    "domain": Domain.name,
    "seed": SeedModel.name,
    "expert": Expert.name,
    "mixture": Mixture.name,
    "prior": Prior.name,
    "clustering": Clustering.name,
    "job": Job.id,
    "report": Report.id,
    "comparison": Comparison.id,
}


def names_from(session: Session, kind: NameKind, start: str, limit: int = 50) -> list[str]:
    """Names in alphabetical order; of jobs, reports and comparisons the first digits of their ids."""
    column = _COLUMNS[kind]
    statement = select(column).where(column.startswith(start, autoescape=True)).order_by(column).limit(limit)
    names = session.scalars(statement)
    if kind in ("job", "report", "comparison"):
        return [name[: max(_ID_DIGITS, len(start))] for name in names]
    return list(names)
