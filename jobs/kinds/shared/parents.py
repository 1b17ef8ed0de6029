"""The parent of a new expert: the requested one, or the nearest of its mixture (DEMix §6)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from engine.analysis.parent_choice import Nearest, find_nearest
from engine.errors import TrainingError
from engine.events import Event
from engine.files import ArtifactRef
from engine.methods.registry import method_of
from engine.training.data import DomainText
from jobs.attempt.work import Work
from jobs.kinds.shared.model_loading import load_in_turn
from jobs.kinds.shared.resume_guard import read_inputs, write_inputs
from workbench.errors import NotFoundError
from workbench.formatting.number_format import weight
from workbench.registry.clusters.branching import domain_folders
from workbench.registry.experts import can_be_parent, first_of_line
from workbench.schema.tables import Expert, Mixture
from workbench.store.storage import Storage


@dataclass(frozen=True)
class Parent:
    """A possible parent, as it was when the job read the registry."""

    id: str
    name: str
    method: str
    seed_id: str | None
    kept: ArtifactRef
    base_id: str
    base: ArtifactRef
    first: str  # name of the expert at the start of its line of copies; its own name if it is not a copy
    learning_rate: float | None  # the peak that this first one was trained with; None if it is not recorded
    documents: tuple[Path, ...]  # folders of the domains that trained it, if they still exist


@dataclass(frozen=True)
class Choice:
    """The parent. If several were possible: each one's posterior by name, and the number of held-out blocks."""

    parent: Parent
    posterior: dict[str, float]
    num_blocks: int

    def explanation(self, block_size: int) -> str:
        """A sentence that gives the reason for this parent; empty if there was only one."""
        if not self.posterior:
            return ""
        share = weight(self.posterior.get(self.parent.name, 0))
        return (
            f"The parent is “{self.parent.name}”: its mean posterior is {share} "
            f"over {self.num_blocks} held-out blocks of {block_size} tokens."
        )


def possible_parents(session: Session, storage: Storage, mixture: Mixture, name: str | None) -> tuple[Parent, ...]:
    """The experts of the mixture, or the requested one of them. Raises NotFoundError.

    Raises TrainingError if no copy of these experts can be trained.
    """
    members = [member.expert for member in mixture.members]
    chosen = [member for member in members if name in (None, member.name)]
    if not chosen:
        raise NotFoundError("expert", str(name), [member.name for member in members], where=f"in “{mixture.name}”")
    able = [one for one in chosen if can_be_parent(one)]
    if not able:
        title = method_of(chosen[0].method).title
        raise TrainingError(
            f"“{chosen[0].name}” cannot be a parent: experts of {title} cannot be copied and trained.",
            "Train another expert beside the backbone (workbench train mode), then workbench mode compose.",
        )
    return tuple(_parent(session, storage, one) for one in able)


def choose_parent(
    work: Work, parents: Sequence[Parent], text: DomainText, block_size: int
) -> Generator[Event, None, Choice]:
    """Chooses the parent. A resumed job keeps its parent; raises TrainingError if that one is gone."""
    nearest = yield from _chosen(work, parents, text, block_size)
    names = {parent.id: parent.name for parent in parents}
    parent = next((one for one in parents if one.id == nearest.key), None)
    if parent is None:
        raise TrainingError(
            "The parent that this training started from is no longer in the mixture.",
            "Add it to the mixture again, or start a new job.",
        )
    shares = {names[id]: share for id, share in nearest.posterior.items() if id in names}
    return Choice(parent, shares, nearest.num_blocks)


def require_parent(session: Session, parent: Parent) -> None:
    """Raises TrainingError if the parent was deleted while its copy was trained."""
    if session.get(Expert, parent.id) is None:
        raise TrainingError(
            f"The parent “{parent.name}” was deleted while its copy was trained.",
            "Start a new job with another parent.",
        )


def _parent(session: Session, storage: Storage, row: Expert) -> Parent:
    first = first_of_line(row)
    return Parent(
        row.id,
        row.name,
        row.method,
        row.seed_id,
        storage.kept(row.artifact),
        row.base_id,
        storage.kept(row.base),
        first.name,
        first.config.get("learning_rate"),
        tuple(domain_folders(session, storage, row)),
    )


def _chosen(
    work: Work, parents: Sequence[Parent], text: DomainText, block_size: int
) -> Generator[Event, None, Nearest]:
    if (stored := read_inputs(work, "parent")) is not None:
        return Nearest(**stored)
    nearest = Nearest(parents[0].id, {}, 0)
    if len(parents) > 1:
        nearest = yield from _nearest(work, parents, text, block_size)
    write_inputs(work, "parent", asdict(nearest))
    return nearest


def _nearest(
    work: Work, parents: Sequence[Parent], text: DomainText, block_size: int
) -> Generator[Event, None, Nearest]:
    experts: dict[ArtifactRef, dict[str, ArtifactRef]] = {}
    for parent in parents:
        experts.setdefault(parent.base, {})[parent.id] = parent.kept
    models, ids = load_in_turn(work, experts, block_size), [parent.id for parent in parents]
    if text.dev.num_blocks(block_size) < 1:
        raise TrainingError(
            f"The held-out text of “{text.name}” has {len(text.dev)} tokens. Finding the nearest parent needs at least "
            f"one block of {block_size} tokens.",
            "Import more text, or choose smaller blocks.",
        )
    for result in find_nearest(models, ids, text.dev, block_size):
        if isinstance(result, Nearest):
            return result
        yield result
    raise AssertionError("find_nearest must end with its result")
