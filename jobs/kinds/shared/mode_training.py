"""Training of MoDE experts next to their backbone, in either stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.config import TrainingConfig
from engine.device import choose_device, num_gpus
from engine.events import Note
from engine.inference.text_samples import TextSampler
from engine.methods.mode.active_experts import ActiveExperts
from engine.methods.mode.descriptor import METHOD
from engine.methods.mode.expert_set import ExpertSet
from engine.methods.mode.files import assemble, save_parts
from engine.methods.mode.sharding.folders import gather_checkpoints, made_file
from engine.methods.mode.sharding.launch import most_processes, train_mpmd
from engine.methods.mode.sharding.task import ModeTask
from engine.methods.mode.sizes import part_sizes
from engine.methods.mode.training import TrainingData, train_active
from engine.text.tokenizer import Tokenizer
from engine.training.data import PackedDomain
from engine.training.memory.needs import require_memory_to_build
from jobs.attempt.work import Events, Register, Work
from jobs.kinds.shared.expert_files import HeldOut, NewExpert, last_losses, register_new_expert
from jobs.kinds.shared.resume_guard import note_versions
from jobs.kinds.shared.tokens import DomainFiles, pack
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.mixtures import create_mixture
from workbench.schema.tables import Expert
from workbench.specs.requests import MixtureSpec

Write = Callable[[Path], None]  # fills the folder of an expert


def train_parts(
    work: Work,
    expert_set: ExpertSet,
    domains: Sequence[DomainFiles],
    retained: Sequence[DomainFiles],
    config: TrainingConfig,
    tokenizer: Tokenizer,
) -> Events[tuple[Write, HeldOut]]:
    """Trains in one process or several. Returns a function that writes the parts, and the mean held-out losses (nats).

    Trains on equal samples of these domains. Each evaluation also measures the domains to retain.
    """
    yield from note_versions(work)
    packed = yield from _pack(work, domains, expert_set, tokenizer, config.block_size)
    retained_packed = yield from _pack(work, retained, expert_set, tokenizer, config.block_size)
    data = TrainingData(packed, retained_packed, config)
    num_processes = yield from _choose_processes(work, len(expert_set.experts))
    if num_processes > 1:
        task = ModeTask(expert_set, data, work.folder, work.settings.device)
        training = train_mpmd(task, num_processes, threads=work.settings.threads, log=work.log)
        losses = yield from last_losses(training)
        parts = {init.name: (init.shape, made_file(work.folder, init.key)) for init in expert_set.experts}
        sha256 = str(expert_set.base.sha256)
        write = partial(assemble, parts, base_sha256=sha256, tokenizer_sha256=tokenizer.sha256)
        return write, losses.of(domains)  # `write` joins the files that the processes wrote
    require_memory_to_build(
        expert_set.loaded, expert_set.base.folder, [expert_set.id], config, choose_device(work.settings.device)
    )
    active = yield from load(work, expert_set)
    gather_checkpoints(work.folder, active.expert_parameters(expert_set.id), config)
    sample = TextSampler(active, tokenizer, data.texts(), config)
    losses = yield from last_losses(train_active(active, data, work.folder, sample=sample))
    return write_parts(active, expert_set, tokenizer), losses.of(domains)


def _pack(
    work: Work, domains: Sequence[DomainFiles], expert_set: ExpertSet, tokenizer: Tokenizer, block_size: int
) -> Events[tuple[PackedDomain, ...]]:
    packed: list[PackedDomain] = []
    for domain in domains:
        folder = yield from pack(work, domain, tokenizer, expert_set.base.folder, block_size)
        packed.append(PackedDomain(domain.name, expert_set.id, folder))
    return tuple(packed)


def _choose_processes(work: Work, num_parts: int) -> Events[int]:
    """The requested number of processes, but no more than can have work."""
    requested, most = work.settings.processes, most_processes(num_parts)
    if requested > most:
        yield Note(f"The training uses {most} of {requested} processes: one for the backbone and one for each part.")
    elif not requested and num_gpus(work.settings.device) > 1:
        yield Note("MoDE experts are trained in one process. Set WORKBENCH_PROCESSES to use more.")
    return min(requested or 1, most)


def load(work: Work, expert_set: ExpertSet) -> Events[ActiveExperts]:
    """Loads the backbone with all parts; every byte is checked before use."""
    model = expert_set.backbone().to(choose_device(work.settings.device))
    yield from expert_set.add_to(model, expert_set.keys)
    return expert_set.of(model)


def write_parts(active: ActiveExperts, expert_set: ExpertSet, tokenizer: Tokenizer) -> Write:
    """Returns a function that writes the parts in memory."""
    parts = dict(zip(active.names, active.active, strict=True))
    sha256 = str(expert_set.base.sha256)
    return partial(save_parts, active.model, parts, base_sha256=sha256, tokenizer_sha256=tokenizer.sha256)


def store_step(
    work: Work,
    spec: TrainMode | ComposeMode,
    expert_set: ExpertSet,
    domains: Sequence[DomainFiles],
    tokenizer: Tokenizer,
    write: Write,
    held_out: HeldOut,
    *,
    base_id: str,
    seed_id: str | None,
    parent_id: str | None,
    config: Mapping[str, Any],
) -> Register:
    """Stores the parts as one expert, in an artifact that `write` fills; registers it and a mixture of only this one.

    A parent that was deleted meanwhile is recorded as none.
    """
    id, kind = expert_set.id, METHOD.artifact_kind
    with work.storage.new(id) as folder:
        write(folder)
        size = sum(part_sizes(folder).values())
    made = NewExpert(id, spec.expert, METHOD.name, tuple(domains), size, held_out, kind, base_id, tokenizer.sha256)
    whole = (asdict(spec.training) if spec.domains else {}) | dict(config)

    def register(session: Session) -> dict[str, Any]:
        parent = session.get(Expert, parent_id) if parent_id else None
        known_parent = parent.id if parent else None
        register_new_expert(session, work, made, seed_id=seed_id, parent_id=known_parent, config=whole)
        create_mixture(session, MixtureSpec(name=spec.name, experts=[spec.expert]))
        parts = [part["name"] for part in config["parts"]]
        return {"mixture": spec.name, "expert": spec.expert, "parts": parts, "num_parameters": size}

    return register
