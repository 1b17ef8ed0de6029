"""What a search over the whole registry finds, by kind."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.answers.base import Answer

SearchedKind = Literal["expert", "mixture", "domain", "seed", "clustering", "cluster", "job", "report"]


class SearchHit(Answer):
    """One thing that holds every word of a search."""

    id: str
    name: str = Field(description="Its name; of a job or a report its title.")
    detail: str = Field(
        "",
        description="The method of an expert, the corpus of a domain, the family of a seed model, the clustering of a "
        "cluster, the status of a job or the kind of a report.",
    )
    clustering_id: str = Field("", description="Of a cluster: the id of its clustering.")


class SearchGroup(Answer):
    """The hits of one kind: those whose names begin with the words first, at most ten."""

    kind: SearchedKind
    total: int = Field(description="How many there are, also those that are not listed.")
    hits: list[SearchHit]


class SearchAnswer(Answer):
    """What a search found; kinds without a hit are left out."""

    query: str
    groups: list[SearchGroup]
