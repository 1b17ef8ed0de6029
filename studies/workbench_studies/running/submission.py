"""Replications: builds their specs, submits their jobs, and finds them again by their specs.

The plan depends only on the spec, so submitting again under the same name continues: jobs that are done or in progress
are kept, failed ones are retried, missing ones created.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from workbench.kinds.parse_spec import parse_spec
from workbench.registry import database
from workbench.settings import Settings, get_settings
from workbench_studies.core.pace import measure_pace
from workbench_studies.core.sizes import Size, SizeName
from workbench_studies.core.spec import Replicate
from workbench_studies.papers.catalog import PAPERS, plan
from workbench_studies.papers.forecast import Forecast, forecast

GROUP = "source"
_LEAST_GROUPS = 400  # a split of one in twenty then has about twenty of them
_NUM_CHECKED = 1000  # records


# what to make from which text ----------------------------------------------------------------------


def spec_for_folder(
    folder: Path, name: str, size: SizeName, seeds: int, settings: Settings | None = None, *, paper: str = "demix"
) -> Replicate:
    """The spec of a replication on the files of `folder`/train and `folder`/novel, each a domain named after its file.

    If a domain of that name has other text, the new domain is named NAME-DOMAIN.
    """
    with database.reading(settings) as session:
        budget = _budget(session, paper, name, size)
        importer = _Importer(session, name, budget)
        train = [importer.spec(file, "train") for file in _files(folder / "train", 2)]
        novel = [importer.spec(file, "novel") for file in _files(folder / "novel", 1)]
    domains = [spec.name for spec in train]
    return _spec(paper, domains, [spec.name for spec in novel], name, size, seeds, budget, [*train, *novel])


def spec_for_domains(
    domains: Sequence[str],
    novel: Sequence[str],
    name: str,
    size: SizeName,
    seeds: int,
    settings: Settings | None = None,
    *,
    paper: str = "demix",
) -> Replicate:
    """The spec of a replication on imported domains; raises BadSpecError when they are too few or repeated."""
    with database.reading(settings) as session:
        budget = _budget(session, paper, name, size)
    return _spec(paper, domains, novel, name, size, seeds, budget)


def changed(spec: Replicate, **fields: Any) -> Replicate:
    """A validated copy of the spec with other fields."""
    return cast(Replicate, parse_spec(spec.model_dump() | fields))


def _spec(
    paper: str,
    domains: Sequence[str],
    novel: Sequence[str],
    name: str,
    size: SizeName,
    seeds: int,
    budget: Size,
    imports: Sequence[ImportCorpus] = (),
) -> Replicate:
    spec = {
        "kind": PAPERS[paper].kind,
        "name": name,
        "size": size,
        "budget": budget,
        "seeds": seeds,
        "domains": list(domains),
        "novel": list(novel),
        "imports": [spec.model_dump() for spec in imports],
    }
    return cast(Replicate, parse_spec(spec | PAPERS[paper].defaults(budget, domains)))


def _budget(session: Session, paper: str, name: str, size: SizeName) -> Size:
    """The size's budget in an existing replication of this name; else the current one."""
    existing = next((spec for spec in replications(session) if spec.name == name), None)
    if existing and existing.paper != paper:
        problem = f"“{name}” is a replication of another paper ({existing.paper})."
        raise BadSpecError([problem], "Choose another name.")
    return existing.budget if existing and existing.size == size else PAPERS[paper].sizes[size]


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


class _Importer:
    """Builds import specs of files, under names that no other text has."""

    def __init__(self, session: Session, name: str, budget: Size) -> None:
        self._session, self._name, self._budget = session, name, budget
        self._forecast = RegistryForecast(session)

    def spec(self, file: TextFile, role: str) -> ImportCorpus:
        """The import spec of one file; raises BadSpecError when its name is not a valid domain name."""
        domain = file.path.name.split(".")[0]
        fields = {
            "kind": "import-corpus",
            "name": domain,
            "path": str(file.path),
            "role": role,
            "max_bytes": self._budget.max_bytes,
            "piece_length": self._budget.piece_length,
            "group_field": GROUP if _is_grouped(file) else "",
        }
        try:
            spec: ImportCorpus = parse_spec(fields)
            return parse_spec(fields | {"name": f"{self._name}-{domain}"}) if self._is_taken(spec) else spec
        except BadSpecError as error:
            problem = f"{file.path.name} is not a valid name for a domain:"
            raise BadSpecError([problem, *error.complaints], "Rename the file or the replication.") from None

    def _is_taken(self, spec: ImportCorpus) -> bool:
        is_taken = any(self._forecast.holds((what, spec.name)) for what in ("domain", "corpus"))
        return is_taken and rows.find_by_specs(self._session, [spec]) == [None]


def _is_grouped(file: TextFile) -> bool:
    """True if the records have a group field with enough values to split by."""
    records = islice(read_records(file, ("text", GROUP)), _NUM_CHECKED)
    return (
        len({record.values.get(GROUP) for record in records if isinstance(record, Record)} - {None, ""})
        >= _LEAST_GROUPS
    )


# submitting it -------------------------------------------------------------------------------------


def submit_replication(spec: Replicate, settings: Settings | None = None) -> list[str]:
    """Submits its missing jobs in one transaction and returns the ids of all; jobs done or in progress stay.

    Raises BadSpecError when a needed name is taken.
    """
    return submit_plan(lambda _: plan(spec), settings)


def forecast_of(spec: Replicate, settings: Settings | None = None) -> Forecast:
    """The forecast of a replication's missing jobs at today's pace, and the claims that they cannot test."""
    settings = settings or get_settings()
    with database.reading(settings) as session:
        done = [key for key, card in jobs_of(session, spec).items() if card.state == "done"]
    budget = spec.budget
    pace = measure_pace(budget.shape, budget.vocab_size, budget.block_size, settings.device)
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
