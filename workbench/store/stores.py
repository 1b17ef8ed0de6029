"""Whose artifacts these are: a folder of artifacts names its registry, and only that one may remove anything there."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from workbench.errors import SweepRefused
from workbench.registry.tables import Artifact, Job, RegistryIdentity
from workbench.store.storage import OWNER, UNREADABLE, Storage


def find_registry_id(session: Session) -> str | None:
    """The id of this registry, which its first migration made; None where somebody took it away."""
    return session.scalar(select(RegistryIdentity.id))


def registry_id(session: Session) -> str:
    """The id of this registry, made now if it has none. Needs a transaction that writes."""
    found = find_registry_id(session)
    if found is None:
        try:
            with session.begin_nested():
                session.add(RegistryIdentity())
        except IntegrityError:  # another process was faster
            pass
        found = session.scalars(select(RegistryIdentity.id)).one()
    return found


@dataclass(frozen=True)
class StoreState:
    """The artifacts of a folder as one registry sees them, by their ids."""

    owner: str | None
    registry_id: str | None
    known: frozenset[str]
    missing: frozenset[str]  # some registry recorded them and nobody deleted them, but this one does not know them
    unrecorded: frozenset[str]  # unknown, and nothing says that a registry ever knew them
    older: frozenset[str]  # those of them that were there before this registry had a row

    @property
    def num_artifacts(self) -> int:
        return len(self.known) + len(self.missing) + len(self.unrecorded)


def state_of(session: Session, storage: Storage) -> StoreState:
    """What is there and what this registry knows of it; what it deleted itself counts for neither."""
    there, rows = storage.ids(), set(session.scalars(select(Artifact.id)))
    unknown, recorded = there - rows, storage.records.ids()
    owner, unrecorded = storage.owner(), frozenset(unknown - recorded)
    return StoreState(
        owner=owner,
        registry_id=find_registry_id(session),
        known=frozenset(there & rows),
        missing=frozenset(id for id in unknown & recorded if storage.records.is_live(id)),
        unrecorded=unrecorded,
        older=_older_than_rows(session, storage, unrecorded) if owner is None else frozenset(),
    )


def _older_than_rows(session: Session, storage: Storage, ids: frozenset[str]) -> frozenset[str]:
    """Those artifacts that were made before this registry's first job and artifact: by another registry."""
    firsts = [session.scalar(select(func.min(table.created_at))) for table in (Job, Artifact)]
    first = min((one for one in firsts if one is not None), default=time.time())
    older = set()
    for id in ids:
        with suppress(FileNotFoundError):
            if storage.path(id).stat().st_mtime < first:
                older.add(id)
    return frozenset(older)


def refusal(state: StoreState, storage: Storage) -> SweepRefused | None:
    """Why this registry must not remove anything; None where it may.

    Artifacts that no registry owns yet are its own only if it knows most of them, and what it does not know came later:
    nobody recorded what is there, so another registry may need it.
    """
    known, folder = len(state.known), storage.folder
    if state.owner == UNREADABLE:
        return SweepRefused(
            f"{folder / OWNER} cannot be read, so nothing tells whose the artifacts are: nothing is removed.",
            "Make sure that WORKBENCH_DATABASE_URL is right, and run `workbench registry rebuild`.",
        )
    if state.owner is not None and state.owner != state.registry_id:
        return SweepRefused(
            f"The artifacts in {folder} belong to another registry: nothing is removed.",
            "Set WORKBENCH_DATABASE_URL to that registry; if it is lost, run `workbench registry rebuild`.",
        )
    lost = len(state.missing)
    if state.owner is None or not known:
        lost += len(state.unrecorded)
    if lost > known or (state.owner is None and lost and (lost == known or state.older)):
        return SweepRefused(
            f"This registry knows {known:,} of {known + lost:,} artifacts in {folder}: nothing is removed.",
            "Restore a backup of the registry, or make its rows again: `workbench registry rebuild`.",
        )
    return None


def adopt(session: Session, storage: Storage) -> int:
    """Makes this registry the owner, whoever was it; gives how many artifacts it does not know.

    These count as deleted from now on: the next sweeps move them to the trash.
    """
    storage.set_owner(registry_id(session), replace=True)
    state = state_of(session, storage)
    for id in state.missing | state.unrecorded:
        storage.records.mark_deleted(id, time.time())
    return len(state.missing) + len(state.unrecorded)
