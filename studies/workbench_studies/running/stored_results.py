"""The registry data of a replication: what its jobs left of scores, curves, clusters and reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from engine.files import ArtifactRef
from workbench.answers.cards import JobCard, ReportCard
from workbench.job_records import jobs
from workbench.registry.clusters.cluster_routing import distances_key, find_distances
from workbench.registry.reports import list_reports
from workbench.schema.tables import Clustering, Domain, Evaluation, Expert, SeedModel
from workbench.specs.requests import PlanStep
from workbench.store.storage import Storage
from workbench_studies.core.measurements import Scores, Stored
from workbench_studies.core.spec import Size
from workbench_studies.papers.todays_rule import with_todays_marks

REPORT = "replication"  # the kind of its reports
_TERMS = 5  # as many as tables 2 to 7 of C-BTM print
_HELD_OUT = "dev_loss/"  # what a training's curve of a domain's held-out loss is called


@dataclass(frozen=True)
class StoredClusters:
    """A clustering that a replication made: its files, its sources, how far it goes with them, its clusters' words."""

    kept: ArtifactRef
    sources: tuple[str, ...]
    information: float
    terms: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class StoredResults:
    """Reads the results of submitted steps. Nothing is hashed here: a transaction must be short.

    A name does not make a model one of the replication's: another may have been trained under it. So all is selected by
    the jobs.
    """

    session: Session
    storage: Storage
    size: Size
    submitted: Sequence[tuple[PlanStep, JobCard]]

    @property
    def job_ids(self) -> list[str]:
        return [card.id for _, card in self.submitted]

    def scores(self, domains: Sequence[str]) -> Scores:
        """The scores of the experts on these domains, of the most tokens that the size asks for."""
        most = {"test": self.size.test_tokens, "dev": self.size.dev_tokens}
        query = (
            select(Expert.name, Domain.name, Evaluation)
            .join(Evaluation.expert)
            .join(Evaluation.domain)
            .options(joinedload(Evaluation.artifact))
            .where(Domain.name.in_(domains), Evaluation.block_size == self.size.block_size)
            .where(Expert.job_id.in_(self.job_ids))
            .order_by(Evaluation.num_tokens, Expert.name, Domain.name, Evaluation.split)
        )
        return {
            (expert, domain, row.split): Stored(self.storage.kept(row.artifact), row.num_tokens)
            for expert, domain, row in self.session.execute(query)
            if row.num_tokens <= most[row.split]
        }

    def num_parameters(self) -> dict[str, int]:
        """The parameters of the seed models and experts, by name."""
        of_seeds = select(SeedModel.name, SeedModel.num_parameters).where(SeedModel.job_id.in_(self.job_ids))
        of_experts = select(Expert.name, Expert.num_parameters).where(Expert.job_id.in_(self.job_ids))
        return dict(self.session.execute(of_seeds.union_all(of_experts)).tuples().all())

    def word_counts(self, domains: Collection[str]) -> dict[str, dict[str, int]]:
        """The words between white space of each domain that exists, by split."""
        query = select(Domain.name, Domain.splits).where(Domain.name.in_(domains))
        rows = self.session.execute(query).tuples()
        return {name: {split: int(counts["words"]) for split, counts in splits.items()} for name, splits in rows}

    def clusterings(self) -> dict[str, StoredClusters]:
        """The clusterings by name."""
        return {
            row.name: StoredClusters(
                self.storage.kept(row.artifact),
                tuple(source["name"] for source in row.sources),
                row.metrics["overlap"]["normalised_mutual_information"],
                tuple(tuple(cluster.terms[:_TERMS]) for cluster in row.clusters),
            )
            for row in self._clustering_rows()
        }

    def distances(self, scores: Scores) -> dict[tuple[str, str], Stored]:
        """Distances of the scored test text to the clusters, by clustering and domain."""
        measures = {(domain, score.num_tokens) for (_, domain, split), score in scores.items() if split == "test"}
        of_experts = select(Expert.tokenizer_sha256).where(Expert.job_id.in_(self.job_ids))
        tokenizers = sorted(set(self.session.scalars(of_experts)))
        ids = dict(self.session.execute(select(Domain.name, Domain.id)).tuples().all())
        distances: dict[tuple[str, str], Stored] = {}
        for row in self._clustering_rows():
            for (domain, num_tokens), tokenizer in product(sorted(measures), tokenizers):
                key = distances_key(row.artifact_id, ids[domain], tokenizer, "test", self.size.block_size, num_tokens)
                if (artifact := find_distances(self.session, [key])[0]) is not None:
                    distances[row.name, domain] = Stored(self.storage.kept(artifact), num_tokens)
        return distances

    def _clustering_rows(self) -> Sequence[Clustering]:
        query = select(Clustering).where(Clustering.job_id.in_(self.job_ids)).order_by(Clustering.name)
        return self.session.scalars(query).all()

    def loss_curves(self, job_id: str) -> dict[str, list[tuple[int, float]]]:
        """The curve of each domain's held-out loss (nats per token) in a training, as step and value."""
        losses: dict[str, list[tuple[int, float]]] = {}
        for point in jobs.metrics(self.session, job_id):
            if point.name.startswith(_HELD_OUT):
                losses.setdefault(point.name.removeprefix(_HELD_OUT), []).append((point.step, point.value))
        return losses

    def reports(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """The findings of the reports of a kind, by the key of the step that wrote each."""
        findings = {card.job_id: card.findings for card in list_reports(self.session, kind=kind)}
        return {step.key: findings[card.id] for step, card in self.submitted if card.id in findings}


def newest_report(session: Session, name: str) -> ReportCard | None:
    """The newest report of a replication, its marks in today's words; None while there is none."""
    card = next((report for report in list_reports(session, kind=REPORT) if report.findings["name"] == name), None)
    return card and card.model_copy(update={"findings": with_todays_marks(card.findings)})
