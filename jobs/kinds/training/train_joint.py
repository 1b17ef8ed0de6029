"""Train a DEMix model or one of its baselines (DEMix §3, §4.2; C-BTM §6). Makes base, experts and mixture.

If a method does not change the seed, the seed itself is the base, and only the learned parameters are stored.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.device import choose_device, num_gpus
from engine.events import Event, Note
from engine.files import ArtifactRef
from engine.inference.sampling import TextSampler
from engine.inference.scores import losses_of
from engine.methods.joint_training import Recipe, train_distributed
from engine.methods.registry import get_method
from engine.models.expert_model import TrainableModel, require_context, trainable
from engine.text.blocks import EvalSample
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.training.checkpoint import newest_step, restore
from engine.training.data import PackedDomain
from engine.training.distributed import most_ranks
from engine.training.loop import train
from engine.training.memory import require_memory_to_build
from jobs.attempt.launchers import launcher_of, lost_hosts_withdrawn
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.environment import environment_of
from jobs.kinds.shared.expert_files import NewExpert, keep_expert, register_new_expert, store_base
from jobs.kinds.shared.losses import Losses, last_losses
from jobs.kinds.shared.resume_guard import note_versions, order_of_rows, require_same
from jobs.kinds.shared.side_evaluation import pack_watched
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.mixtures import create_mixture
from workbench.registry.reproducible import ROW_ORDER
from workbench.registry.seeds import seed_row
from workbench.schema.names import ensure_free
from workbench.schema.tables import Artifact, Expert, Mixture
from workbench.specs.requests import MixtureSpec
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact


@dataclass(frozen=True)
class _Inputs:
    seed_id: str
    seed: ArtifactRef
    seed_artifact_id: str
    experts: dict[str, tuple[DomainFiles, ...]]  # by name, each with the domains that train it
    retained: tuple[DomainFiles, ...]


def run(work: Work, spec: TrainJoint) -> Generator[Event, None, Register]:
    """Packs the text, trains all experts together, and stores base and experts separately."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    inputs.seed.check()
    row_order = order_of_rows(work)
    read = [domain for domains in inputs.experts.values() for domain in domains]
    require_same(work, read, {f"seed model “{spec.seed_model}”": str(inputs.seed.sha256)})
    yield from note_versions(work)
    tokenizer = load_tokenizer(inputs.seed.folder)
    packed = []
    for name, domains in inputs.experts.items():
        for domain in domains:
            folder = yield from pack(work, domain, tokenizer, inputs.seed.folder, spec.training.block_size)
            packed.append(PackedDomain(domain.name, stable_id(work.job_id, name), folder))
    if row_order == "ids":
        packed.sort(key=lambda domain: domain.expert)
    retained = yield from pack_watched(work, inputs.retained, tokenizer, inputs.seed.folder, spec.training)
    num_processes = yield from _choose_processes(work, spec, packed)
    model, losses = yield from _train(work, spec, inputs.seed.folder, tokenizer, packed, retained, num_processes)
    method = get_method(spec.method)
    base_id = inputs.seed_artifact_id if method.base_is_frozen else store_base(work, method, model, tokenizer)
    base_sha256, _ = work.storage.describe(base_id)
    experts = [
        keep_expert(
            work,
            model,
            stable_id(work.job_id, name),
            name,
            domains,
            method=spec.method,
            held_out=losses.of(domains),
            base_sha256=base_sha256,
            tokenizer_sha256=tokenizer.sha256,
        )
        for name, domains in inputs.experts.items()
    ]
    how = {"devices": num_processes, ROW_ORDER: row_order}
    return _register(work, spec, inputs, base_id, experts, tokenizer.sha256, how)


def _choose_processes(work: Work, spec: TrainJoint, domains: Sequence[PackedDomain]) -> Generator[Event, None, int]:
    """How many processes train, each on a device of its own: as spec or settings say, else one on every leased GPU.

    Domains to retain are evaluated in one process.
    """
    usable = min(num_gpus(work.settings.device), most_ranks(domains, spec.training.sequences_per_domain))
    num_processes = spec.num_gpus or work.settings.processes or max(1, usable)
    if num_processes > 1 and spec.retain:
        yield Note("Domains to retain are evaluated in one process, so the training uses one.")
        return 1
    return num_processes


def _train(
    work: Work,
    spec: TrainJoint,
    seed_folder: Path,
    tokenizer: Tokenizer,
    domains: Sequence[PackedDomain],
    retained: Mapping[str, EvalSample],
    num_processes: int,
) -> Generator[Event, None, tuple[TrainableModel, Losses]]:
    """Trains in this process or on several. Returns the model and its last losses on held-out text.

    Domains to retain are evaluated with the single expert.
    """
    settings, config, recipe = work.settings, spec.training, Recipe(spec.method, spec.method_config)
    keys = list(dict.fromkeys(domain.expert for domain in domains))
    method = recipe.descriptor
    if num_processes > 1 or settings.launcher != "local":
        training = train_distributed(
            num_processes,
            seed_folder,
            domains,
            config,
            work.folder,
            recipe=recipe,
            device=settings.device,
            launcher=launcher_of(work),
            threads=settings.threads,
            log=work.log,
        )
        with lost_hosts_withdrawn(work):
            losses = yield from last_losses(training)
        model = method.build(seed_folder, keys, recipe.config, config.seed)  # now, not beside those of the processes
        restore(work.folder, newest_step(work.folder, config), trainable(model, recipe.learns(keys)))
    else:
        device, build = choose_device(settings.device), partial(method.build, seed_folder, keys, recipe.config)
        require_memory_to_build(partial(build, config.seed), seed_folder, recipe.learns(keys), config, device)
        model = build(config.seed).to(device)
        require_context(model, config.block_size)
        texts = [domain.open() for domain in domains]
        losses = yield from last_losses(
            train(
                model,
                texts,
                config,
                work.folder,
                only_experts=recipe.learns(keys),
                balanced=method.balanced,
                watch=(lambda: losses_of(model, keys[0], retained)) if retained else None,
                sample=TextSampler(model, tokenizer, texts, config),
            )
        )
    return model, losses


def _read(session: Session, work: Work, spec: TrainJoint) -> _Inputs:
    ensure_free(session, Mixture, spec.name)
    for name in spec.experts:
        ensure_free(session, Expert, name)
    seed = seed_row(session, spec.seed_model)
    experts = {
        name: tuple(domain_files(session, work.storage, domain) for domain in domains)
        for name, domains in spec.experts.items()
    }
    retained = tuple(domain_files(session, work.storage, name) for name in spec.retain)
    return _Inputs(seed.id, work.storage.kept(seed.artifact), seed.artifact_id, experts, retained)


def _method_config(spec: TrainJoint) -> dict[str, Any]:
    """The settings that only this method has, as stored in an expert's row."""
    config = spec.method_config
    return {} if config is None else {get_method(spec.method).config_field: asdict(config)}


def _register(
    work: Work,
    spec: TrainJoint,
    inputs: _Inputs,
    base_id: str,
    experts: Sequence[NewExpert],
    tokenizer_sha256: str,
    how: Mapping[str, Any],
) -> Register:
    learned = (
        () if get_method(spec.method).base_is_frozen else [one for read in inputs.experts.values() for one in read]
    )

    environment = environment_of(work)

    def register(session: Session) -> dict[str, Any]:
        base = session.get(Artifact, base_id) or register_artifact(
            session, work.storage, base_id, artifact_kinds.BASE, job_id=work.job_id
        )
        for expert in experts:
            register_new_expert(
                session,
                work,
                expert,
                base=base,
                seed_id=inputs.seed_id,
                parent_id=None,
                tokenizer_sha256=tokenizer_sha256,
                config=asdict(spec.training) | _method_config(spec),
                trained_base=learned,
            )
        names = [expert.name for expert in experts]
        create_mixture(session, MixtureSpec(name=spec.name, experts=names))
        return {"mixture": spec.name, "experts": names, **how, "environment": environment}

    return register
