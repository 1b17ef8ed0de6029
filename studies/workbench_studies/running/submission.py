"""Replications: builds their specs, submits their jobs, and finds them again by their specs.

The plan depends only on the spec, so submitting again under the same name continues: jobs that are done or in progress
are kept, failed ones are retried, missing ones created.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from sqlalchemy.orm import Session

from engine.errors import CorpusError
from engine.text.formats import read_records
from engine.text.streams import Record, TextFile, find_files
from jobs.queue.submit import submit_plan
from workbench.answers.cards import JobCard
from workbench.errors import BadSpecError
from workbench.job_records import jobs as rows
from workbench.job_records.preconditions import RegistryForecast
from workbench.kinds.data import ImportCorpus
from workbench.kinds.kind import parse_spec
from workbench.registry import database
from workbench.settings import get_settings
from workbench_studies.core.spec import SEEDS, Replicate, Size, SizeName
from workbench_studies.papers.catalog import PAPERS, plan
from workbench_studies.papers.forecast import ReplicationForecast, forecast, measure_pace

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
