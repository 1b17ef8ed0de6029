"""Checks a spec against the registry when a job is submitted: names taken or unknown, paths that do not exist.

What unfinished jobs will create counts as existing, so that a chain of jobs can be submitted together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.foreign_files import what_is
from engine.text.streams import printable
from workbench.errors import BadSpecError, NameTakenError, NotFoundError
from workbench.kinds.kind import Kind, kind_named, parse_spec
from workbench.registry.aliases import model_name
from workbench.schema.job_states import UNFINISHED
from workbench.schema.job_tables import Job
from workbench.schema.names import ALIAS_SIGN, Named, ensure_free, find_row, not_a_cli_name, unknown_name
from workbench.schema.tables import Clustering, Corpus, Domain, Expert, Mixture, Prior, SeedModel
from workbench.specs.base import SEED, RegistryObject, Spec, What

TABLES: dict[What, Named] = {
    "corpus": Corpus,
    "domain": Domain,
    "seed model": SeedModel,
    "expert": Expert,
    "mixture": Mixture,
    "clustering": Clustering,
    "prior": Prior,
}


def validate_against_registry(session: Session, spec: Spec) -> None:
    """Raises BadSpecError with every name that is taken, unknown or invalid on the command line, and a missing path."""
    RegistryForecast(session).validate(spec)


def require_free_names(session: Session, spec: Spec) -> None:
    """Raises NameTakenError when a row has the name of what a job will create, BadSpecError for an invalid one.

    Names of domains are checked when they are registered: the job may have been asked for those that are there already.
    """
    kind = kind_of(spec)
    for what, name in [] if kind.may_replace(spec) else kind.creates(spec):
        if what != "domain":
            ensure_free(session, TABLES[what], name)


class RegistryForecast:
    """The registry with what its unfinished jobs will create, read once for many specs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._coming: set[RegistryObject] = set()
        self._any_domain = False
        for job in session.scalars(select(Job).where(Job.state.in_(UNFINISHED))):
            with suppress(BadSpecError):  # of a plug-in that is no longer installed
                self.expect(parse_spec(job.spec))

    def expect(self, spec: Spec) -> None:
        """Counts the results of a job with this spec as existing."""
        kind = kind_of(spec)
        self._coming.update(kind.creates(spec))
        self._any_domain |= kind.creates_unnamed_domains(spec)

    def holds(self, thing: RegistryObject) -> bool:
        """Whether an object is in the registry, or will be once the unfinished jobs are done."""
        what, name = thing
        table: Any = TABLES[what]
        if thing in self._coming or find_row(self._session, table, name) is not None:
            return True
        return name.startswith(SEED) and ("seed model", name.removeprefix(SEED)) in self._coming

    def validate(self, spec: Spec) -> None:
        """Raises BadSpecError with all complaints of `validate_against_registry`."""
        kind = kind_of(spec)
        taken = self._taken_names(kind, spec)
        complaints = [*taken, *self._unknown(kind, spec)]
        if (path := kind.reads(spec)) and not os.path.exists(path):
            complaints.append(f"There is no file or folder at {printable(path)}.")
        elif path and (what := what_is(path)):
            complaints.append(f"{printable(path)} is a {what}, not a file.")
        if not complaints and kind.complaints is not None:
            complaints = kind.complaints(self._session, spec)
        if complaints and complaints == taken:
            raise BadSpecError(complaints, "Choose another name, or continue with what exists.")
        if complaints:
            raise BadSpecError(complaints)

    def _taken_names(self, kind: Kind[Spec], spec: Spec) -> list[str]:
        things = sorted(set(kind.creates(spec)))
        taken = [] if kind.may_replace(spec) else [thing for thing in things if self.holds(thing)]
        complaints = [NameTakenError(*thing).problem for thing in taken]
        if refused := sorted((thing for thing in things if not_a_cli_name(*thing)), key=lambda thing: len(thing[1])):
            complaints.append(not_a_cli_name(*refused[0]))  # the names of the others begin with it
        return complaints

    def _unknown(self, kind: Kind[Spec], spec: Spec) -> list[str]:
        complaints = []
        for what, name in dict.fromkeys(kind.requires(spec)):
            if not self.holds((what, name)) and not (what == "domain" and self._any_domain):
                table: Any = TABLES[what]
                problem = unknown_name(self._session, table, name)
                coming = (one for other, one in self._coming if other == problem.what)
                complaints.append(str(NotFoundError(problem.what, problem.name, [*problem.known, *coming])))
        return complaints


def without_aliases(session: Session, spec: Spec) -> Spec:
    """The spec with the names of the models that its aliases mean now: each attempt looks models up by name."""
    required = [name for what, name in kind_of(spec).requires(spec) if what in ("expert", "mixture")]
    meant = {name: model_name(session, name) for name in required if ALIAS_SIGN in name}
    for what, name in kind_of(spec).requires(spec):
        if what == "seed model" and name.startswith(SEED) and (row := find_row(session, SeedModel, name)) is not None:
            meant[name] = row.name
    given = spec.model_dump(mode="json")
    fields = {name: _replace_names(value, meant) for name, value in given.items()}
    return parse_spec(fields) if fields != given else spec


def settled(session: Session, spec: Spec) -> Spec:
    """The spec with the defaults that depend on the registry, as they are now: what is stored keeps its meaning."""
    kind = kind_of(spec)
    return spec if kind.settled is None else kind.settled(session, spec)


def advice_on(session: Session, spec: Spec) -> list[str]:
    """What to know of a job before it starts: a default that the registry decides, or a setting that does harm."""
    kind = kind_of(spec)
    return [] if kind.advice is None else kind.advice(session, spec)


def _replace_names(value: Any, meant: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_replace_names(one, meant) for one in value]
    return meant.get(value, value) if isinstance(value, str) else value


def kind_of(spec: Spec) -> Kind[Spec]:
    """The kind of job of a spec."""
    return kind_named(spec.model_dump(include={"kind"}).get("kind"))


def creates(spec: Spec) -> list[RegistryObject]:
    """The objects that a job of this spec will register, as far as their names are known beforehand."""
    return kind_of(spec).creates(spec)
