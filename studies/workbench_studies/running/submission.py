"""Replications: builds their specs, submits their jobs, finds them again by their specs, and reads what they left.

The plan depends only on the spec, so submitting again under the same name continues: jobs that are done or in progress
are kept, failed ones are retried, missing ones created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any, cast

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from engine.clusters.config import is_term
from engine.errors import CorpusError
from engine.files import ArtifactRef
from engine.text.formats import read_records
from engine.text.streams import Record, TextFile, find_files
from jobs.queue.submit import submit_plan
from workbench.answers.cards import JobCard, ReportCard
from workbench.errors import BadSpecError
from workbench.job_records import jobs as rows
from workbench.job_records.preconditions import RegistryForecast
from workbench.kinds.data import ImportCorpus
from workbench.kinds.kind import parse_spec
from workbench.registry import database
from workbench.registry.clusters.cluster_routing import distances_key, find_distances
from workbench.registry.reports import list_reports
from workbench.schema.tables import Clustering, Domain, Evaluation, Expert, SeedModel
from workbench.settings import get_settings
from workbench.specs.requests import PlanStep
from workbench.store.storage import Storage
from workbench_studies.core.measurements import Scores, Stored
from workbench_studies.core.spec import SEEDS, Replicate, Size, SizeName
from workbench_studies.papers.catalog import PAPERS, plan
from workbench_studies.papers.forecast import ReplicationForecast, forecast, measure_pace
from workbench_studies.papers.todays_rule import with_todays_marks

GROUP = "source"
_LEAST_GROUPS = 400  # a split of one in twenty then has about twenty of them
_NUM_CHECKED = 1000  # records


# what to make from which text ----------------------------------------------------------------------


def new_spec(
    paper: str,
    name: str,
    size: SizeName,
    seeds: int | None = None,
    *,
    folder: Path | None = None,
    domains: Sequence[str] = (),
    novel: Sequence[str] = (),
) -> Replicate:
    """The spec of a replication on imported domains, or on the files of `folder`/train and `folder`/novel.

    Each file is a domain named after it, or NAME-DOMAIN if a domain of that name has other text. An existing
    replication of this name keeps its budget at the same size, and without `seeds` their number. Raises BadSpecError
    when domains are too few or repeated.
    """
    with database.reading() as session:
        existing = next((spec for spec in replications(session) if spec.name == name), None)
        if existing and existing.paper != paper:
            problem = f"“{name}” is a replication of another paper ({existing.paper})."
            raise BadSpecError([problem], "Choose another name.")
        budget = existing.budget if existing and existing.size == size else PAPERS[paper].sizes[size]
        imports = list(_imports(session, folder, name, budget)) if folder else []
    if folder:
        domains, novel = ([text.name for text in imports if text.role == role] for role in ("train", "novel"))
    spec = {
        "kind": PAPERS[paper].kind,
        "name": name,
        "size": size,
        "budget": budget,
        "seeds": seeds or (existing.seeds if existing else SEEDS),
        "domains": list(domains),
        "novel": list(novel),
        "imports": [text.model_dump() for text in imports],
    }
    return cast(Replicate, parse_spec(spec | PAPERS[paper].defaults(budget, domains)))


def with_fields(spec: Replicate, **fields: Any) -> Replicate:
    """A validated copy of the spec with other fields."""
    return cast(Replicate, parse_spec(spec.model_dump() | fields))


def _imports(session: Session, folder: Path, name: str, budget: Size) -> Iterator[ImportCorpus]:
    """An import of each file, under a name that no other text has; raises BadSpecError for one that is not valid."""
    forecast = RegistryForecast(session)
    for role, least in (("train", 2), ("novel", 1)):
        for file in _files(folder / role, least):
            domain = file.path.name.split(".")[0]
            fields = {
                "kind": "import-corpus",
                "name": domain,
                "path": str(file.path),
                "role": role,
                "max_bytes": budget.max_bytes,
                "piece_length": budget.piece_length,
                "group_field": GROUP if _is_grouped(file) else "",
            }
            try:
                spec: ImportCorpus = parse_spec(fields)
                is_taken = any(forecast.holds((what, domain)) for what in ("domain", "corpus"))
                if is_taken and rows.find_by_specs(session, [spec]) == [None]:
                    spec = parse_spec(fields | {"name": f"{name}-{domain}"})
            except BadSpecError as error:
                problem = f"{file.path.name} is not a valid name for a domain:"
                raise BadSpecError([problem, *error.complaints], "Rename the file or the replication.") from None
            yield spec


def _files(folder: Path, least: int) -> list[TextFile]:
    files = [file for file in find_files(folder) if isinstance(file, TextFile)]
    if len(files) < least:
        raise CorpusError(
            f"The folder has {len(files)} text files; at least {least} {'is' if least == 1 else 'are'} needed, one for "
            "each domain.",
            "Put train/*.jsonl and novel/*.jsonl into the folder.",
            path=folder,
        )
    return files


def _is_grouped(file: TextFile) -> bool:
    """True if the records have a group field with enough values to split by."""
    records = islice(read_records(file, ("text", GROUP)), _NUM_CHECKED)
    groups = {record.values.get(GROUP) for record in records if isinstance(record, Record)}
    return len(groups - {None, ""}) >= _LEAST_GROUPS


# submitting it -------------------------------------------------------------------------------------


def submit_replication(spec: Replicate) -> list[str]:
    """Submits its missing jobs in one transaction and returns the ids of all; jobs done or in progress stay.

    Raises BadSpecError when a needed name is taken.
    """
    return submit_plan(lambda _: plan(spec))


def forecast_of(spec: Replicate) -> ReplicationForecast:
    """The forecast of a replication's missing jobs at today's pace, and the claims that they cannot test."""
    with database.reading() as session:
        done = [key for key, card in jobs_of(session, spec).items() if card.state == "done"]
    budget = spec.budget
    pace = measure_pace(budget.shape, budget.vocab_size, budget.block_size, get_settings().device)
    return forecast(spec, pace, done)


def jobs_of(session: Session, spec: Replicate) -> dict[str, JobCard]:
    """The existing jobs by the key of their step."""
    steps = plan(spec)
    cards = rows.find_by_specs(session, [step.spec for step in steps])
    return {step.key: card for step, card in zip(steps, cards, strict=True) if card}


def replications(session: Session) -> list[Replicate]:
    """All replications, the newest first; of several specs with one name, the one with the most seeds."""
    cards = [card for paper in PAPERS.values() for card in rows.list_jobs(session, kind=paper.kind)]
    specs: dict[str, Replicate] = {}
    for card in sorted(cards, key=lambda card: card.created_at, reverse=True):
        if not card.spec["partial"]:
            spec: Replicate = parse_spec(card.spec)
            known = specs.setdefault(spec.name, spec)
            specs[spec.name] = spec if spec.seeds > known.seeds else known
    return list(specs.values())


def find_replication(session: Session, name: str) -> Replicate:
    """The replication of this name with the most seeds; raises BadSpecError with the existing names."""
    existing = replications(session)
    for spec in existing:
        if spec.name == name:
            return spec
    known = ", ".join(spec.name for spec in existing) or "none"
    raise BadSpecError(
        [f"There is no replication “{name}”. Existing: {known}."], "Start one with `workbench replicate`."
    )


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
                tuple(tuple(filter(is_term, cluster.terms))[:_TERMS] for cluster in row.clusters),
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
        for point in rows.metrics(self.session, job_id):
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
