"""Whose artifacts these are: a folder of artifacts names its registry, and only that one may remove anything there."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from workbench.errors import SweepRefused
from workbench.storage import Storage
from workbench.tables import Artifact, RegistryIdentity


def find_registry_id(session: Session) -> str | None:
    """The id of this registry; None as long as it has none."""
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

    @property
    def num_artifacts(self) -> int:
        return len(self.known) + len(self.missing) + len(self.unrecorded)


def state_of(session: Session, storage: Storage) -> StoreState:
    """What is there and what this registry knows of it; what it deleted itself counts for neither."""
    there, rows = storage.ids(), set(session.scalars(select(Artifact.id)))
    unknown, recorded = there - rows, storage.records.ids()
    return StoreState(
        owner=storage.owner(),
        registry_id=find_registry_id(session),
        known=frozenset(there & rows),
        missing=frozenset(id for id in unknown & recorded if storage.records.is_live(id)),
        unrecorded=frozenset(unknown - recorded),
    )


def refusal(state: StoreState, storage: Storage) -> SweepRefused | None:
    """Why this registry must not remove anything; None where it may."""
    known, folder = len(state.known), storage.folder
    if state.owner is not None and state.owner != state.registry_id:
        return SweepRefused(
            f"The artifacts in {folder} belong to another registry: nothing is removed.",
            "Set WORKBENCH_DATABASE_URL to that registry; if it is lost, run `workbench registry rebuild`.",
        )
    lost = len(state.missing)
    if state.owner is None or not known:  # nobody recorded what is there: what is unrecorded may be needed, too
        lost += len(state.unrecorded)
    if lost > known:
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
