"""Searches the whole registry: names, titles, notes, tags, aliases and ids of what it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, String, case, cast, func, literal, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from workbench.answers.search import SearchAnswer, SearchedKind, SearchGroup, SearchHit
from workbench.job_records.jobs import shown_state
from workbench.registry.database import plain
from workbench.schema import database_clock
from workbench.schema.job_tables import Job
from workbench.schema.tables import Alias, Cluster, Clustering, Corpus, Domain, Expert, Mixture, Report, SeedModel

MOST_HITS = 10  # of one kind
MOST_WORDS = 20
LONGEST_QUERY = 200  # characters


@dataclass(frozen=True, kw_only=True)
class _Searched:
    """One kind: its table, what names a row, and what else of it is searched."""

    kind: SearchedKind
    table: Any
    name: InstrumentedAttribute[str]
    texts: tuple[InstrumentedAttribute[str], ...] = ()
    lists: tuple[InstrumentedAttribute[list[Any]], ...] = ()  # of strings, as JSON
    alias: Any = None  # the column of aliases that refers to it
    detail: Any = field(default_factory=lambda: literal(""))
    joined: Any = None  # the table of the detail, where it is another one
    clustering_id: Any = field(default_factory=lambda: literal(""))

    def select_hits(self, words: list[str], query: str) -> Select[Any]:
        """The first hits, each with the number of all."""
        begins_so = case((self.name.istartswith(query, autoescape=True), 0), else_=1)
        newest = [self.table.created_at.desc()] if self.table in (Job, Report) else []
        columns = {"id": self.table.id, "name": self.name, "detail": self.detail, "clustering_id": self.clustering_id}
        statement: Select[Any] = select(*(column.label(name) for name, column in columns.items()))
        statement = statement.add_columns(func.count().over().label("total")).where(
            *(self._holds(word) for word in words)
        )
        if self.joined is not None:
            statement = statement.join(self.joined)
        return statement.order_by(begins_so, *newest, self.name, self.table.id).limit(MOST_HITS)

    def _holds(self, word: str) -> ColumnElement[bool]:
        return or_(*self._conditions(word))

    def _conditions(self, word: str) -> Iterator[ColumnElement[bool]]:
        yield self.table.id.startswith(word, autoescape=True)
        for text in (self.name, *self.texts):
            yield text.icontains(word, autoescape=True)
        if any(map(str.isalnum, word)):  # a sign alone would match JSON's own
            for names in self.lists:
                yield cast(names, String).icontains(json.dumps(word)[1:-1], autoescape=True)
        if self.alias is not None:
            named = select(self.alias).where(self.alias.is_not(None), Alias.name.icontains(word, autoescape=True))
            yield self.table.id.in_(named)


def search(session: Session, query: str) -> SearchAnswer:
    """What holds every word of the query, upper and lower case alike; nothing for a query without words."""
    query = plain(query)[:LONGEST_QUERY].strip()
    words = query.split()[:MOST_WORDS]
    groups = [_group(session, searched, words, query) for searched in _searched(session)] if words else []
    return SearchAnswer(query=query, groups=[group for group in groups if group.hits])


def _group(session: Session, searched: _Searched, words: list[str], query: str) -> SearchGroup:
    rows = session.execute(searched.select_hits(words, query)).all()
    hits = [SearchHit.from_fields(row) for row in rows]
    return SearchGroup(kind=searched.kind, total=rows[0].total if rows else 0, hits=hits)


def _searched(session: Session) -> tuple[_Searched, ...]:
    """All kinds, in the order of an answer."""
    return (
        _Searched(
            kind="expert",
            table=Expert,
            name=Expert.name,
            texts=(Expert.notes, Expert.method),
            lists=(Expert.tags,),
            alias=Alias.expert_id,
            detail=Expert.method,
        ),
        _Searched(kind="mixture", table=Mixture, name=Mixture.name, texts=(Mixture.notes,), alias=Alias.mixture_id),
        _Searched(
            kind="domain",
            table=Domain,
            name=Domain.name,
            texts=(Corpus.name,),
            detail=Corpus.name,
            joined=Domain.corpus,
        ),
        _Searched(
            kind="seed",
            table=SeedModel,
            name=SeedModel.name,
            texts=(SeedModel.source, SeedModel.family),
            detail=SeedModel.family,
        ),
        _Searched(kind="clustering", table=Clustering, name=Clustering.name),
        _Searched(
            kind="cluster",
            table=Cluster,
            name=Cluster.name,
            texts=(Cluster.notes,),
            lists=(Cluster.terms,),
            detail=Clustering.name,
            joined=Cluster.clustering,
            clustering_id=Clustering.id,
        ),
        _Searched(
            kind="job", table=Job, name=Job.title, texts=(Job.kind,), detail=shown_state(database_clock.now(session))
        ),
        _Searched(kind="report", table=Report, name=Report.title, texts=(Report.kind,), detail=Report.kind),
    )
