"""The things of the registry, each described once: its nouns, its card, how it is listed, shown and deleted.

The routes of the API that list, show and delete, the same verbs of the command line, completion and the notebook's
tables follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from sqlalchemy import select
from sqlalchemy.orm import Session

from workbench.answers.base import Answer
from workbench.registry import aliases, corpora, experts, mixtures, priors, reports, seeds, views
from workbench.registry.clusters import clusterings
from workbench.schema import tables
from workbench.schema.base import Base
from workbench.schema.job_tables import Job
from workbench.schema.names import bare_seeds

ResourceKind = Literal[
    "corpus",
    "domain",
    "seed",
    "expert",
    "mixture",
    "prior",
    "clustering",
    "job",
    "report",
    "comparison",
    "alias",
    "view",
]
ID_DIGITS = 8  # as lists show ids


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A sort of resource."""

    table: type[Base]
    list_all: Callable[..., Sequence[Any]]
    get: Callable[[Session, str], Any]
    delete: Callable[[Session, str], Any] | None = None
    noun: str = ""  # if it is not that of the table
    plural: str = ""  # if it is not the noun with an s
    path: str = ""  # of its routes, if it is not the plural
    listed: str  # sentence of the route that lists
    deleted: str = ""  # sentence of the route that deletes
    shown: str = ""  # sentence of the route that shows one, if not the usual

    @property
    def card(self) -> type[Answer]:
        """The type of its cards."""
        card: type[Answer] = get_type_hints(self.get)["return"]
        return card

    def __post_init__(self) -> None:
        object.__setattr__(self, "noun", self.noun or self.table.noun)
        object.__setattr__(self, "plural", self.plural or f"{self.noun}s")

    def delete_one(self, session: Session, name: str) -> Any:
        """Deletes one, by its name or id; returns the card of what it was."""
        card = self.get(session, name)
        assert self.delete is not None
        self.delete(session, name)
        return card


RESOURCES: Mapping[str, Resource] = {
    "expert": Resource(
        table=tables.Expert,
        list_all=experts.list_experts,
        get=experts.get_expert,
        delete=experts.delete_expert,
        listed="Every expert: how it was made, from what and with which results.",
        deleted="Deletes an expert with its scores; refused while an expert, a seed model, a mixture or a job uses it.",
    ),
    "mixture": Resource(
        table=tables.Mixture,
        list_all=mixtures.list_mixtures,
        get=mixtures.get_mixture,
        delete=mixtures.delete_mixture,
        listed="Every mixture with its gate and its members.",
        deleted="Deletes a mixture, not its experts; refused while an alias or a job uses it.",
    ),
    "alias": Resource(
        shown="One alias, such as law@production.",
        plural="aliases",
        table=tables.Alias,
        list_all=aliases.list_aliases,
        get=aliases.get_alias,
        delete=aliases.delete_alias,
        listed="Every alias with the model that it means.",
        deleted="Deletes an alias, not its model; the answer is what it meant.",
    ),
    "view": Resource(
        noun="saved view",
        shown="One saved view.",
        path="views",
        table=tables.SavedView,
        list_all=views.list_views,
        get=views.get_view,
        delete=views.delete_view,
        listed="Every saved view with its address in the studio.",
        deleted="Deletes a saved view; the answer is what it was.",
    ),
    "domain": Resource(
        table=tables.Domain,
        list_all=corpora.list_domains,
        get=corpora.get_domain,
        listed="Every domain with its corpus and the size of each split.",
    ),
    "corpus": Resource(
        plural="corpora",
        table=tables.Corpus,
        list_all=corpora.list_corpora,
        get=corpora.get_corpus,
        delete=corpora.delete_corpus,
        listed="Every corpus with its domains and what its import refused.",
        deleted="Deletes a corpus with its domains and the scores on them; refused while an expert or a job depends on "
        "them.",
    ),
    "seed": Resource(
        path="seeds",
        table=tables.SeedModel,
        list_all=seeds.list_seeds,
        get=seeds.get_seed,
        delete=seeds.delete_seed,
        listed="Every seed model.",
        deleted="Deletes a seed model; refused while an expert, a clustering or a job uses it.",
    ),
    "clustering": Resource(
        table=tables.Clustering,
        list_all=clusterings.list_clusterings,
        get=clusterings.get_clustering,
        delete=clusterings.delete_clustering,
        listed="Every clustering with its clusters.",
        deleted="Deletes a clustering, not its domains; refused while an expert, a mixture or a job uses it.",
    ),
    "prior": Resource(
        table=tables.Prior,
        list_all=priors.list_priors,
        get=priors.get_prior,
        delete=priors.delete_prior,
        listed="Every prior with the share of each expert.",
        deleted="Deletes a prior; mixtures keep their weights.",
    ),
    "report": Resource(
        table=tables.Report,
        list_all=reports.list_reports,
        get=reports.get_report,
        delete=reports.delete_report,
        listed="Every report of a job, the newest first.",
        deleted="Deletes a report with its pages; the experts and mixtures that it is about are kept.",
    ),
}


def names_from(session: Session, kind: ResourceKind, start: str) -> list[str]:
    """Names that begin so, in alphabetical order; of jobs, reports and comparisons the first digits of their ids.

    Seed models as they are follow experts.
    """
    table: Any = {"job": Job, "comparison": tables.Comparison}.get(kind) or RESOURCES[kind].table
    has_name = hasattr(table, "name")
    column = table.name if has_name else table.id
    statement = select(column).where(column.startswith(start, autoescape=True)).order_by(column).limit(50)
    seeds = [row.name for row in bare_seeds(session) if row.name.startswith(start)] if kind == "expert" else []
    return [name if has_name else name[: max(ID_DIGITS, len(start))] for name in session.scalars(statement)] + seeds
