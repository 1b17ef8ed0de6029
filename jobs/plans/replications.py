"""Replications: what to make from which text, asked for as jobs, and found again by what was asked for.

The plan follows from the wish alone, so asking again under the same name goes on: jobs that are done or under way are
kept, failed ones tried again, missing ones made.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from sqlalchemy.orm import Session

from engine.errors import CorpusError
from engine.text.formats import read_records
from engine.text.records import Record
from engine.text.streams import TextFile, find_files
from jobs.plans.plan import submit_plan
from workbench.errors import BadSpec
from workbench.job_records import jobs as rows
from workbench.job_records.preconditions import RegistryForecast
from workbench.kinds.data.import_corpus import ImportCorpus
from workbench.kinds.replications.replicate import Replicate
from workbench.registry import database
from workbench.registry.cards import JobCard
from workbench.replications.papers import PAPERS
from workbench.replications.plan import plan
from workbench.replications.sizes import Size, SizeName
from workbench.settings import Settings
from workbench.specs import parse_spec

GROUP = "source"
_LEAST_GROUPS = 400  # a split of one in twenty then holds twenty of them, give or take
_LOOK_AT = 1000  # records


# what to make from which text ----------------------------------------------------------------------


def wish_for(
    folder: Path, name: str, size: SizeName, seeds: int, settings: Settings | None = None, *, paper: str = "demix"
) -> Replicate:
    """A replication on the files of `folder`/train and `folder`/novel, a domain each, called after its file.

    A domain of that name that holds other text stays what it is: ours is then called NAME-DOMAIN.
    """
    with database.reading(settings) as session:
        budget = _budget(session, paper, name, size)
        importer = _Importer(session, name, budget)
        train = [importer.wish(file, "train") for file in _files(folder / "train", 2)]
        novel = [importer.wish(file, "novel") for file in _files(folder / "novel", 1)]
    domains = [one.name for one in train]
    return _wish(paper, domains, [one.name for one in novel], name, size, seeds, budget, [*train, *novel])


def wish_on(
    domains: Sequence[str],
    novel: Sequence[str],
    name: str,
    size: SizeName,
    seeds: int,
    settings: Settings | None = None,
    *,
    paper: str = "demix",
) -> Replicate:
    """A replication on domains that were imported before; raises BadSpec when they are too few or named twice."""
    with database.reading(settings) as session:
        budget = _budget(session, paper, name, size)
    return _wish(paper, domains, novel, name, size, seeds, budget)


def changed(wish: Replicate, **fields: Any) -> Replicate:
    """The wish with other fields, checked as a whole."""
    return cast(Replicate, parse_spec(wish.model_dump() | fields))


def _wish(
    paper: str,
    domains: Sequence[str],
    novel: Sequence[str],
    name: str,
    size: SizeName,
    seeds: int,
    budget: Size,
    imports: Sequence[ImportCorpus] = (),
) -> Replicate:
    wish = {
        "kind": PAPERS[paper].kind,
        "name": name,
        "size": size,
        "budget": budget,
        "seeds": seeds,
        "domains": list(domains),
        "novel": list(novel),
        "imports": [one.model_dump() for one in imports],
    }
    return cast(Replicate, parse_spec(wish | PAPERS[paper].defaults(budget, domains)))


def _budget(session: Session, paper: str, name: str, size: SizeName) -> Size:
    """What the size stood for when a replication of this name was begun; else what it stands for now."""
    begun = next((wish for wish in replications(session) if wish.name == name), None)
    if begun and begun.paper != paper:
        told = f"“{name}” must be a new name, but is the replication of another paper already ({begun.paper})."
        raise BadSpec([told], "Choose another name.")
    return begun.budget if begun and begun.size == size else PAPERS[paper].sizes[size]


def _files(folder: Path, least: int) -> list[TextFile]:
    found = [file for file in find_files(folder) if isinstance(file, TextFile)]
    if len(found) < least:
        raise CorpusError(
            f"There must be at least {least} {'file' if least == 1 else 'files'} with text, one for each domain, but "
            f"there are {len(found)}.",
            "Put train/*.jsonl and novel/*.jsonl into the folder.",
            path=folder,
        )
    return found


class _Importer:
    """Wishes to import files, under names that no other text has."""

    def __init__(self, session: Session, name: str, budget: Size) -> None:
        self._session, self._name, self._budget = session, name, budget
        self._outlook = RegistryForecast(session)

    def wish(self, file: TextFile, role: str) -> ImportCorpus:
        """The import of one file; raises BadSpec where its name cannot be a domain's."""
        domain = file.path.name.split(".")[0]
        wish = {
            "kind": "import-corpus",
            "name": domain,
            "path": str(file.path),
            "role": role,
            "max_bytes": self._budget.max_bytes,
            "piece_length": self._budget.piece_length,
            "group_field": GROUP if _is_grouped(file) else "",
        }
        try:
            found: ImportCorpus = parse_spec(wish)
            return parse_spec(wish | {"name": f"{self._name}-{domain}"}) if self._is_others(found) else found
        except BadSpec as error:
            told = f"{file.path.name} cannot name a domain:"
            raise BadSpec([told, *error.complaints], "Give the file another name, or the replication.") from None

    def _is_others(self, wish: ImportCorpus) -> bool:
        is_taken = any(self._outlook.holds((what, wish.name)) for what in ("domain", "corpus"))
        return is_taken and rows.find_by_specs(self._session, [wish]) == [None]


def _is_grouped(file: TextFile) -> bool:
    """Whether the records say which belong together, in groups small enough to split by."""
    records = islice(read_records(file, ("text", GROUP), lambda _: None), _LOOK_AT)
    return len({one.values.get(GROUP) for one in records if isinstance(one, Record)} - {None, ""}) >= _LEAST_GROUPS


# asking for it -------------------------------------------------------------------------------------


def submit_replication(wish: Replicate, settings: Settings | None = None) -> list[str]:
    """The ids of all its jobs, in one transaction: those done or under way stay, the others are queued.

    Raises BadSpec when a name that it needs is taken by something else.
    """
    return submit_plan(lambda _: plan(wish), settings)


def jobs_of(session: Session, wish: Replicate) -> dict[str, JobCard]:
    """The job of each step by its key, as far as there are any."""
    steps = plan(wish)
    found = rows.find_by_specs(session, [step.spec for step in steps])
    return {step.key: card for step, card in zip(steps, found, strict=True) if card}


def replications(session: Session) -> list[Replicate]:
    """What was asked for, the newest first, each name once: the newest of its wishes with the most seeds."""
    cards = [card for paper in PAPERS.values() for card in rows.list_jobs(session, kind=paper.kind)]
    wishes: dict[str, Replicate] = {}
    for card in sorted(cards, key=lambda card: card.created_at, reverse=True):
        if not card.spec["partial"]:
            wish: Replicate = parse_spec(card.spec)
            held = wishes.setdefault(wish.name, wish)
            wishes[wish.name] = wish if wish.seeds > held.seeds else held
    return list(wishes.values())


def find_replication(session: Session, name: str) -> Replicate:
    """The wish of this name, with the most seeds that were asked for; raises BadSpec with the names there are."""
    found = replications(session)
    for wish in found:
        if wish.name == name:
            return wish
    known = ", ".join(wish.name for wish in found) or "none"
    raise BadSpec([f"There is no replication called “{name}” (there are: {known})."], "Begin one: workbench replicate.")
