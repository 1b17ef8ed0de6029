"""Training of the parts of an expert next to their backbone: of a new one, and of a composition."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.config import TrainingConfig
from engine.events import Event
from engine.methods.parts.method import part_sizes
from engine.methods.parts.training import PartSet, PartsTraining, TrainingData
from engine.plugins import load_object
from engine.text.tokenizer import Tokenizer
from engine.training.data import PackedDomain
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.environment import environment_of
from jobs.kinds.shared.expert_files import NewExpert, register_new_expert
from jobs.kinds.shared.losses import HeldOut, last_losses
from jobs.kinds.shared.resume_guard import note_versions
from jobs.kinds.shared.tokens import DomainFiles, pack
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.mixtures import create_mixture
from workbench.schema.tables import Artifact, Expert
from workbench.specs.requests import MixtureSpec

Write = Callable[[Path], None]  # fills the folder of an expert


def train_parts(
    work: Work,
    part_set: PartSet,
    domains: Sequence[DomainFiles],
    retained: Sequence[DomainFiles],
    config: TrainingConfig,
    tokenizer: Tokenizer,
) -> Generator[Event, None, tuple[Write, HeldOut]]:
    """Trains as the method does. Returns a function that writes the parts, and the mean held-out losses (nats).

    Trains on equal samples of these domains. Each evaluation also measures the domains to retain.
    """
    yield from note_versions(work)
    packed = yield from _pack(work, domains, part_set, tokenizer, config.block_size)
    data = TrainingData(packed, (yield from _pack(work, retained, part_set, tokenizer, config.block_size)), config)
    settings = work.settings
    where = (work.folder, settings.device, settings.processes, settings.threads, work.log)
    training: PartsTraining = load_object(part_set.descriptor.training)(part_set, data, tokenizer, *where)
    losses = yield from last_losses(iter(training))
    return training.write, losses.of(domains)


def _pack(
    work: Work, domains: Sequence[DomainFiles], part_set: PartSet, tokenizer: Tokenizer, block_size: int
) -> Generator[Event, None, tuple[PackedDomain, ...]]:
    packed: list[PackedDomain] = []
    for domain in domains:
        folder = yield from pack(work, domain, tokenizer, part_set.base.folder, block_size)
        packed.append(PackedDomain(domain.name, part_set.id, folder))
    return tuple(packed)


def store_parts(
    work: Work,
    spec: TrainMode | ComposeMode,
    part_set: PartSet,
    domains: Sequence[DomainFiles],
    write: Write,
    held_out: HeldOut,
    *,
    base_id: str,
    seed_id: str | None,
    parent_id: str | None,
    tokenizer_sha256: str,
    config: Mapping[str, Any],
) -> Register:
    """Stores parts as those of one expert, in an artifact that `write` fills.

    Returns a function that registers it, and a mixture of it only. A parent that was deleted meanwhile is recorded as
    none.
    """
    with work.storage.new(part_set.id) as folder:
        write(folder)
        size = sum(part_sizes(folder).values())
    kind = part_set.descriptor.artifact_kind
    expert = NewExpert(part_set.id, spec.expert, part_set.method, tuple(domains), size, held_out, kind)
    trained = asdict(spec.training) if spec.domains else {}

    environment = environment_of(work)

    def register(session: Session) -> dict[str, Any]:
        parent = session.get(Expert, parent_id) if parent_id else None
        register_new_expert(
            session,
            work,
            expert,
            base=session.get_one(Artifact, base_id),
            seed_id=seed_id,
            parent_id=parent.id if parent else None,
            tokenizer_sha256=tokenizer_sha256,
            config={**trained, **config},
        )
        create_mixture(session, MixtureSpec(name=spec.name, experts=[expert.name]))
        return {
            "mixture": spec.name,
            "expert": expert.name,
            "parts": [part["name"] for part in config["parts"]],
            "num_parameters": expert.num_parameters,
            "environment": environment,
        }

    return register
