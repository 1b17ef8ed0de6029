"""Checks a workbench: hashes every artifact again, and names what depends on those that are damaged or missing.

The rows are read first, in one short transaction, and again for each fault: what was deleted meanwhile is not a fault.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Select, or_, select, text
from sqlalchemy.orm import Session

from engine.errors import DamagedFileError, Problem
from engine.files import ArtifactRef, faults_in
from workbench.answers.integrity import Dependent, FaultyArtifact, StoreCheck, Thing
from workbench.errors import DiskFullError, StorageError, StoreFailedError
from workbench.formatting.shell_command import shell_command
from workbench.registry import database
from workbench.registry.database import reading
from workbench.schema.tables import (
    Artifact,
    Clustering,
    Domain,
    Evaluation,
    Expert,
    Mixture,
    MixtureMember,
    Report,
    SeedModel,
)
from workbench.settings import Settings
from workbench.store import ownership
from workbench.store.storage import CachedArtifact, Storage, get_storage

See = Callable[[int, int, int, int], object]  # artifacts and bytes: checked, and all


def check_store(settings: Settings, see: See = lambda *_: None) -> StoreCheck:
    """Hashes every file of every artifact that has a row; `see` hears of the progress after each artifact."""
    storage, started_at = get_storage(settings), time.monotonic()
    with database.reading(settings) as session:
        registry_faults = _registry_faults(session)
        artifacts = list(session.scalars(select(Artifact).order_by(Artifact.created_at, Artifact.id)))
        session.expunge_all()
        state = ownership.state_of(session, storage)
    total, done, faulty = sum(one.size_bytes for one in artifacts), 0, []
    for number, artifact in enumerate(artifacts):
        see(number, len(artifacts), done, total)
        if (fault := faulty_artifact(settings, artifact)) is not None:
            faulty.append(fault)
        done += artifact.size_bytes
    see(len(artifacts), len(artifacts), total, total)
    lost = sorted(state.missing)
    return StoreCheck(
        ok=not (faulty or lost or registry_faults),
        num_artifacts=len(artifacts),
        num_bytes=total,
        seconds=time.monotonic() - started_at,
        faulty=faulty,
        lost_rows=lost,
        leftovers=sorted(storage.ids() - state.known - state.missing - {one.id for one in artifacts}),
        registry_faults=registry_faults,
    )


def faulty_artifact(settings: Settings, artifact: Artifact) -> FaultyArtifact | None:
    """What is wrong with the files of an artifact and what needs it; None if nothing is, or its row was deleted."""
    storage = get_storage(settings)
    faults = _faults(storage, artifact)
    is_missing = not storage.place(artifact.id).is_dir()
    if not faults:
        return None
    with database.reading(settings) as session:
        if session.get(Artifact, artifact.id) is None:
            return None  # deleted while it was read
        needed_by = sorted(set(dependents(session, artifact.id)), key=lambda one: (one.thing, one.name))
    return FaultyArtifact(
        id=artifact.id,
        kind=artifact.kind,
        state="missing" if is_missing else "damaged",
        faults=faults,
        needed_by=needed_by,
    )


def _faults(storage: Storage, artifact: Artifact) -> list[str]:
    """What is wrong, after a damaged copy was fetched again from a shared store.

    Raises StoreFailedError while the store is away, and DiskFullError where its copy does not fit.
    """
    try:
        kept = storage.kept(artifact)
        if not kept.folder.is_dir():
            return ["Its folder is missing."]
        if not (faults := _faults_of_files(kept)) or not isinstance(kept, CachedArtifact):
            return faults
        kept.fetch_again()
        return _faults_of_files(kept)
    except (StoreFailedError, DiskFullError):
        raise
    except StorageError as error:  # a shared store's own copy
        return [error.cause]
    except OSError as error:
        return [_unreadable(error)]


def _faults_of_files(kept: ArtifactRef) -> list[str]:
    try:
        return [f"{name} {fault}" for name, fault in faults_in(kept.folder, kept.sha256)]
    except OSError as error:
        return [_unreadable(error)]


def _unreadable(error: OSError) -> str:
    """A sentence about an error such as that of a disk's input or output."""
    return f"Its files cannot be read ({error})."


def _registry_faults(session: Session) -> list[str]:
    """The complaints of SQLite's own check; PostgreSQL has checksums of its own."""
    if session.get_bind().dialect.name != "sqlite":
        return []
    rows = [str(row[0]) for row in session.execute(text("PRAGMA integrity_check(20)"))]
    broken = session.execute(text("PRAGMA foreign_key_check")).all()
    return [row for row in rows if row != "ok"] + [f"A row of {row[0]} refers to a missing {row[2]}." for row in broken]


def dependents(session: Session, artifact_id: str) -> Iterator[Dependent]:
    """What cannot be used without this artifact: its own rows, and experts and mixtures that need them."""
    of_artifact = or_(Expert.artifact_id == artifact_id, Expert.base_id == artifact_id)
    names: dict[Thing, Select[str]] = {
        "domain": select(Domain.name).where(Domain.artifact_id == artifact_id),
        "seed model": select(SeedModel.name).where(SeedModel.artifact_id == artifact_id),
        "clustering": select(Clustering.name).where(Clustering.artifact_id == artifact_id),
        "report": select(Report.title).where(Report.artifact_id == artifact_id),
        "expert": select(Expert.name).where(of_artifact),
    }
    for thing, statement in names.items():
        for name in session.scalars(statement):
            yield Dependent(thing=thing, name=name)
    for expert, domain, split in session.execute(
        select(Expert.name, Domain.name, Evaluation.split)
        .select_from(Evaluation)
        .join(Evaluation.expert)
        .join(Evaluation.domain)
        .where(Evaluation.artifact_id == artifact_id)
    ):
        yield Dependent(thing="evaluation", name=f"{expert} on {domain} ({split})")
    members = select(Mixture.name).join(MixtureMember).join(MixtureMember.expert).where(of_artifact)
    # And mixtures whose gate weighs by a clustering of this artifact, or of an embedder in it.
    of_clustering = or_(Clustering.artifact_id == artifact_id, SeedModel.artifact_id == artifact_id)
    ids = set(session.scalars(select(Clustering.id).outerjoin(Clustering.seed).where(of_clustering)))
    gates = session.execute(select(Mixture.name, Mixture.gate)) if ids else ()
    for name in {*session.scalars(members), *(name for name, gate in gates if gate.get("clustering") in ids)}:
        yield Dependent(thing="mixture", name=name)


_ID = re.compile(r"[0-9a-f]{32}")
_OWNERS = ("expert", "evaluation", "domain", "seed model", "clustering", "report")  # the nearest to a request first


@contextmanager
def naming_damage(settings: Settings) -> Iterator[None]:
    """Adds the names of what needs a damaged file to the DamagedFileError of the block."""
    try:
        yield
    except DamagedFileError as damaged:
        raise with_names(settings, damaged) from damaged


def with_names(settings: Settings, damaged: DamagedFileError) -> DamagedFileError:
    """The same error with what is damaged by name; unchanged where the registry does not know it."""
    needed_by: list[Dependent] = []
    with suppress(Problem), reading(settings) as session:
        for id in _ID.findall(damaged.problem):
            needed_by = needed_by or list(dependents(session, id))
    thing = next((thing for thing in _OWNERS if _names(needed_by, thing)), "")
    if not thing:
        return damaged
    names = _names(needed_by, thing)
    listed = " and ".join(f"“{name}”" for name in names[:3]) + (" and others" if len(names) > 3 else "")
    verb = "is" if len(names) == 1 else "are"
    problem = f"The {thing}{'s' if len(names) > 1 else ''} {listed} {verb} damaged: {damaged.problem}"
    if thing != "expert" or len(names) > 1:  # several, as with their base
        return DamagedFileError(problem, damaged.next_step)
    command = shell_command("expert", "disable", names[0])
    return DamagedFileError(problem, f"To use mixtures without it, switch it off: `{command}`. {damaged.next_step}")


def _names(needed_by: list[Dependent], thing: str) -> list[str]:
    return sorted(one.name for one in needed_by if one.thing == thing)
