"""Ownership of artifacts: a folder of artifacts names its registry, and only this one may remove anything there."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from workbench.errors import RegistryMismatchError
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact, RegistryIdentity
from workbench.store import tombstones
from workbench.store.storage import OWNER, UNREADABLE, Storage, StoredIds


def find_registry_id(session: Session) -> str | None:
    """The id of this registry, made by its first migration; None if it was removed."""
    return session.scalar(select(RegistryIdentity.id))


def registry_id(session: Session) -> str:
    """The id of this registry, made now if it has none. Needs a write transaction."""
    id = find_registry_id(session)
    if id is None:
        try:
            with session.begin_nested():
                session.add(RegistryIdentity())
        except IntegrityError:  # another process was faster
            pass
        id = session.scalars(select(RegistryIdentity.id)).one()
    return id


@dataclass(frozen=True)
class StoreState:
    """The ids of the artifacts of a folder as one registry sees them."""

    owner: str | None
    registry_id: str | None
    known: frozenset[str]
    deleted: frozenset[str]  # unknown, and some machine deleted it
    missing: frozenset[str]  # recorded and not deleted, but unknown to this registry
    unrecorded: frozenset[str]  # unknown and never recorded
    older: frozenset[str]  # unrecorded ones that are older than this registry's first row


def state_of(session: Session, storage: Storage) -> StoreState:
    """Compares stored artifacts with the rows of this registry; deleted ones do not count."""
    stored, rows = storage.ids(), set(session.scalars(select(Artifact.id)))
    deleted = tombstones.deleted_among(session, stored - rows)
    unknown, recorded = stored - rows - deleted, storage.records.ids()
    owner, unrecorded = storage.owner(), frozenset(unknown - recorded)
    return StoreState(
        owner=owner,
        registry_id=find_registry_id(session),
        known=frozenset(stored & rows),
        deleted=frozenset(deleted),
        missing=frozenset(id for id in unknown & recorded if storage.records.is_live(id)),
        unrecorded=unrecorded,
        older=_older_than_rows(session, storage, unrecorded) if owner is None else frozenset(),
    )


def _older_than_rows(session: Session, storage: Storage, ids: frozenset[str]) -> frozenset[str]:
    """The artifacts older than this registry's first job and artifact, which another registry made."""
    firsts = [session.scalar(select(func.min(table.created_at))) for table in (Job, Artifact)]
    first = min((at for at in firsts if at is not None), default=time.time())
    older = set()
    for id in ids:
        with suppress(FileNotFoundError):
            if storage.place(id).stat().st_mtime < first:
                older.add(id)
    return frozenset(older)


def refusal(state: StoreState, storage: Storage) -> RegistryMismatchError | None:
    """The reason why this registry must not remove anything; None if it may.

    Artifacts without an owner are its own only if it knows most of them and the unknown ones are newer than it:
    without records another registry may need them.
    """
    known, folder = len(state.known), storage.folder
    if state.owner == UNREADABLE:
        return RegistryMismatchError(
            f"{folder / OWNER} cannot be read, so the owner of the artifacts is unknown. Nothing is removed.",
            "Check WORKBENCH_DATABASE_URL, and run `workbench registry rebuild`.",
        )
    if state.owner is not None and state.owner != state.registry_id:
        return RegistryMismatchError(
            f"The artifacts in {folder} belong to another registry. Nothing is removed.",
            "Set WORKBENCH_DATABASE_URL to that registry; if it is lost, run `workbench registry rebuild`.",
        )
    lost = len(state.missing)
    if state.owner is None or not known:
        lost += len(state.unrecorded)
    if lost > known or (state.owner is None and lost and (lost == known or state.older)):
        return RegistryMismatchError(
            f"This registry knows {known:,} of {known + lost:,} artifacts in {folder}. Nothing is removed.",
            "Restore a backup of the registry, or rebuild its rows: `workbench registry rebuild`.",
        )
    return None


def adopt(session: Session, storage: Storage, stored: StoredIds | None = None) -> int:
    """Makes this registry the owner; returns the number of artifacts that it does not know.

    These are marked as deleted: the next sweeps move them to the trash, and those `stored` in a shared store go 30 days
    later.
    """
    storage.set_owner(registry_id(session), replace=True)
    state = state_of(session, storage)
    unknown = state.missing | state.unrecorded
    for id in unknown:
        storage.records.mark_deleted(id, time.time())
    if stored is not None:
        unknown |= tombstones.unknown_among(session, stored.artifacts)
        tombstones.note_deleted(session, unknown)
        for job_id in tombstones.unknown_among(session, stored.checkpoints | stored.logs):
            tombstones.note_upload(session, job_id, job_id)
    return len(unknown)
