"""Train a DEMix model or one of its baselines (DEMix §3, §4.2; C-BTM §6). Makes base, experts and mixture.

If a method does not change the seed, the seed itself is the base, and only the learned parameters are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.device import choose_device, num_gpus
from engine.events import Note
from engine.inference.scores import losses_of
from engine.inference.text_samples import TextSampler
from engine.methods.joint_training import Recipe, start_experts, train_distributed
from engine.methods.registry import get_method
from engine.models.expert_model import TrainableModel, require_context, trainable
from engine.text.blocks import EvalSample
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.training.checkpoint import newest_step, restore
from engine.training.data import PackedDomain
from engine.training.distributed import most_ranks
from engine.training.loop import train
from engine.training.memory import require_memory_to_build
from jobs.attempt.leased_devices import launcher_of, withdrawing_lost_hosts
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.expert_files import (
    HeldOutLosses,
    NewExpert,
    keep_expert,
    last_losses,
    register_new_expert,
    seed_of,
    store_base,
)
from jobs.kinds.shared.resume_guard import note_versions, order_of_rows
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack, require_same
from jobs.kinds.training.train_expert import pack_watched
from workbench.kinds.training.train_joint import TrainJoint
from workbench.registry.mixtures import create_mixture
from workbench.registry.reproducible import ROW_ORDER
from workbench.registry.seeds import seed_row
from workbench.specs.requests import MixtureSpec


def run(work: Work, spec: TrainJoint) -> JobRun:
    """Packs the text, trains all experts together, and stores base and experts separately."""
    with work.reading() as session:
        row = seed_row(session, spec.seed_model)
        seed_id, seed_artifact_id, seed = row.id, row.artifact_id, work.storage.kept(row.artifact)
        domains_of = {  # an expert, by its name
            name: [domain_files(session, work.storage, domain) for domain in domains]
            for name, domains in spec.experts.items()
        }
        retained = [domain_files(session, work.storage, name) for name in spec.retain]
    seed.check()
    row_order = order_of_rows(work)
    read = [domain for domains in domains_of.values() for domain in domains]
    require_same(work, read, {f"seed model “{spec.seed_model}”": str(seed.sha256)})
    yield from note_versions(work)
    tokenizer = load_tokenizer(seed.folder)
    packed = []
    for name, domains in domains_of.items():
        for domain in domains:
            folder = yield from pack(work, domain, tokenizer, seed.folder, spec.training.block_size)
            packed.append(PackedDomain(domain.name, work.stable_id(name), folder))
    if row_order == "ids":
        packed.sort(key=lambda domain: domain.expert)
    samples = yield from pack_watched(work, retained, tokenizer, seed.folder, spec.training)
    num_processes = yield from _choose_processes(work, spec, packed)
    model, losses = yield from _train(work, spec, seed.folder, tokenizer, packed, samples, num_processes)
    method = get_method(spec.method)
    base_id = seed_artifact_id if method.base_is_frozen else store_base(work, method, model, tokenizer)
    experts = [
        keep_expert(
            work,
            model,
            work.stable_id(name),
            name,
            domains,
            method=spec.method,
            held_out=losses.of(domains),
            base_id=base_id,
            tokenizer_sha256=tokenizer.sha256,
        )
        for name, domains in domains_of.items()
    ]
    how = {"devices": num_processes, ROW_ORDER: row_order}
    return partial(_register, work, spec, seed_id, experts, () if method.base_is_frozen else read, how)


def _choose_processes(work: Work, spec: TrainJoint, domains: Sequence[PackedDomain]) -> Events[int]:
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
) -> Events[tuple[TrainableModel, HeldOutLosses]]:
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
        with withdrawing_lost_hosts(work):
            losses = yield from last_losses(training)
        model = method.build(seed_folder, keys, recipe.config, config.seed)  # now, not while the processes hold theirs
        restore(work.folder, newest_step(work.folder, config), trainable(model, recipe.learns(keys)))
    else:
        device, build = choose_device(settings.device), partial(method.build, seed_folder, keys, recipe.config)
        require_memory_to_build(partial(build, config.seed), seed_folder, recipe.learns(keys), config, device)
        model = build(config.seed).to(device)
        require_context(model, config.block_size)
        texts = [domain.open() for domain in domains]
        training = train(  # refuses what cannot be trained on, before anything is read
            model,
            texts,
            config,
            work.folder,
            only_experts=recipe.learns(keys),
            balanced=method.balanced,
            watch=(lambda: losses_of(model, keys[0], retained)) if retained else None,
            sample=TextSampler(model, tokenizer, texts, config),
        )
        yield from start_experts(model, texts, config, work.folder)
        losses = yield from last_losses(training)
    return model, losses


def _register(
    work: Work,
    spec: TrainJoint,
    seed_id: str,
    experts: Sequence[NewExpert],
    trained_base: Sequence[DomainFiles],
    how: Mapping[str, Any],
    session: Session,
) -> dict[str, Any]:
    of_method = spec.method_config  # the settings that only this method has
    own = {} if of_method is None else {get_method(spec.method).config_field: asdict(of_method)}
    for expert in experts:
        config = asdict(spec.training) | own
        register_new_expert(
            session, work, expert, seed_id=seed_id, parent_id=None, config=config, trained_base=trained_base
        )
    names = [expert.name for expert in experts]
    create_mixture(session, MixtureSpec(name=spec.name, experts=names))
    return {"mixture": spec.name, "experts": names, **seed_of(session, seed_id), **how}
