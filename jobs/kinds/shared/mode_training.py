"""Training experts of MoDE beside their backbone, in either stage: what a job of MoDE reads, does and keeps."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from engine.config import TrainingConfig
from engine.device import choose_device
from engine.events import Event, Note
from engine.methods.mode.active_experts import ActiveExperts
from engine.methods.mode.expert_set import ExpertSet
from engine.methods.mode.files import assemble, save_parts
from engine.methods.mode.sharding.folders import gather_checkpoints, made_file
from engine.methods.mode.sharding.launch import most_processes, train_mpmd
from engine.methods.mode.sharding.task import ModeTask
from engine.methods.mode.training import TrainingData, train_active
from engine.text.tokenizer import Tokenizer
from engine.training.data import PackedDomain
from engine.training.launch import num_gpus
from jobs.attempt.work import Register, Work, log_path
from jobs.kinds.shared.expert_files import NewExpert, Write, register_new_expert
from jobs.kinds.shared.losses import last_losses, mean_loss
from jobs.kinds.shared.tokens import DomainFiles, pack
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.mixtures import create_mixture
from workbench.registry.tables import Artifact, Expert
from workbench.specs import MixtureSpec


def train_parts(
    work: Work,
    lineup: ExpertSet,
    domains: Sequence[DomainFiles],
    retained: Sequence[DomainFiles],
    config: TrainingConfig,
    tokenizer: Tokenizer,
) -> Generator[Event, None, tuple[Write, float | None]]:
    """Trains in this process or on several; gives what writes the parts, and the mean held-out loss (nats per token).

    Trained is on equal samples of these domains; each evaluation looks at those to retain, too.
    """
    packed = yield from _pack(work, domains, lineup, tokenizer)
    lesson = TrainingData(packed, (yield from _pack(work, retained, lineup, tokenizer)), config)
    num_processes = yield from _choose_processes(work, len(lineup.experts))
    if num_processes > 1:
        task = ModeTask(lineup, lesson, work.folder, work.settings.device)
        log = log_path(work.settings, work.job_id)
        losses = yield from last_losses(train_mpmd(task, num_processes, threads=work.settings.threads, log=log))
        return _write_made(work, lineup, tokenizer), mean_loss(losses, domains)
    active = yield from load(work, lineup)
    gather_checkpoints(work.folder, active.expert_parameters(lineup.id), config)
    losses = yield from last_losses(train_active(active, lesson, work.folder))
    return write_parts(active, lineup, tokenizer), mean_loss(losses, domains)


def _pack(
    work: Work, domains: Sequence[DomainFiles], lineup: ExpertSet, tokenizer: Tokenizer
) -> Generator[Event, None, tuple[PackedDomain, ...]]:
    packed: list[PackedDomain] = []
    for domain in domains:
        folder = yield from pack(work, domain, tokenizer)
        packed.append(PackedDomain(domain.name, lineup.id, folder))
    return tuple(packed)


def _choose_processes(work: Work, num_parts: int) -> Generator[Event, None, int]:
    """As many as were asked for and have something to do."""
    asked, most = work.settings.processes, most_processes(num_parts)
    if asked > most:
        yield Note(f"The training takes {most} processes of {asked}: one for the backbone, and one for each part.")
    elif not asked and num_gpus(work.settings.device) > 1:
        yield Note("Experts of MoDE are trained in one process, since WORKBENCH_PROCESSES asks for no more.")
    return min(asked or 1, most)


def load(work: Work, lineup: ExpertSet) -> Generator[Event, None, ActiveExperts]:
    """The backbone with all parts beside it, every byte checked before use."""
    model = lineup.backbone().to(choose_device(work.settings.device))
    yield from lineup.add_to(model, lineup.keys)
    return lineup.of(model)


def write_parts(active: ActiveExperts, lineup: ExpertSet, tokenizer: Tokenizer) -> Write:
    """Writes what is in memory."""
    parts = dict(zip(active.names, active.active, strict=True))
    sha256 = str(lineup.base.sha256)
    return partial(save_parts, active.model, parts, base_sha256=sha256, tokenizer_sha256=tokenizer.sha256)


def _write_made(work: Work, lineup: ExpertSet, tokenizer: Tokenizer) -> Write:
    """Brings together what each process wrote."""
    parts = {one.name: (one.shape, made_file(work.folder, one.key)) for one in lineup.experts}
    sha256 = str(lineup.base.sha256)
    return partial(assemble, parts, base_sha256=sha256, tokenizer_sha256=tokenizer.sha256)


def registering(
    work: Work,
    spec: TrainMode | ComposeMode,
    expert: NewExpert,
    *,
    base_id: str,
    seed_id: str | None,
    parent_id: str | None,
    tokenizer_sha256: str,
    config: Mapping[str, Any],
) -> Register:
    """Puts the expert into the registry, and a mixture of it alone; of a parent that is gone by then it tells none."""
    trained = asdict(spec.training) if spec.domains else {}

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
        }

    return register
