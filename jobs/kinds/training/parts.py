"""Experts with parts (MoDE §3.2): trains parts next to a frozen backbone, and composes them with gates.

A composition has copies of its own: the source experts do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.config import TrainingConfig
from engine.device import choose_device, num_gpus
from engine.errors import TrainingError
from engine.events import Note, PartOrder
from engine.files import ArtifactRef
from engine.methods.parts.method import Learning, PartsMethod, get_parts_method, part_sizes
from engine.methods.parts.training import PartInit, PartSet, PartsTraining, TrainingData
from engine.plugins import load_object
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.training.data import PackedDomain
from jobs.attempt.work import Events, JobRun, Register, Work
from jobs.kinds.shared.expert_files import HeldOut, NewExpert, last_losses, register_new_expert, seed_of
from jobs.kinds.shared.resume_guard import note_versions, read_inputs, write_inputs
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack, require_same
from workbench.analysis.changes.retrained_baselines import name_now
from workbench.kinds.training.mode import ComposeMode, TrainMode
from workbench.registry.experts import expert_row
from workbench.registry.mixtures import create_mixture
from workbench.registry.seeds import seed_row
from workbench.schema.composition import ComposedPart, composition
from workbench.schema.tables import Expert
from workbench.specs.requests import MixtureSpec

Write = Callable[[Path], None]  # fills the folder of an expert


def train(work: Work, spec: TrainMode) -> JobRun:
    """Trains the parts next to the backbone, and stores only the parts."""
    with work.reading() as session:
        row = seed_row(session, spec.seed_model)
        seed_id, base_id, seed = row.id, row.artifact_id, work.storage.kept(row.artifact)
        domains, retained = (
            [domain_files(session, work.storage, name) for name in names] for names in (spec.domains, spec.retain)
        )
    seed.check()
    require_same(work, domains, {f"seed model “{spec.seed_model}”": str(seed.sha256)})
    tokenizer = load_tokenizer(seed.folder)
    shape = spec.method_config
    inits = tuple(  # each with a seed of its own: identical ones would learn the same
        PartInit(f"part-{number}", name, replace(shape, seed=shape.seed + number))
        for number, name in enumerate(spec.parts)
    )
    part_set = PartSet(work.stable_id("expert"), seed, inits, spec.method)
    write, losses = yield from train_parts(work, part_set, domains, retained, spec.training, tokenizer)
    domain = spec.domains[0] if len(spec.domains) == 1 else None
    parts = [
        {"name": init.name, "domain": domain, "domains": spec.domains, "of": None, "shape": asdict(init.shape)}
        for init in inits
    ]
    return store_step(
        work,
        spec,
        part_set,
        domains,
        tokenizer,
        write,
        losses,
        base_id=base_id,
        seed_id=seed_id,
        parent_id=None,
        config={"shape": asdict(shape), "parts": parts, "learning": "experts"},
    )


@dataclass(frozen=True)
class _Composition:
    experts: dict[str, ArtifactRef]  # by id, in their order
    names: tuple[str, ...]  # of the experts
    parts: tuple[ComposedPart, ...]
    method: PartsMethod
    base: ArtifactRef
    base_id: str
    seed_id: str | None
    domains: tuple[DomainFiles, ...]  # to train on now
    known: tuple[DomainFiles, ...]  # that train or trained any part
    retained: tuple[DomainFiles, ...]


def compose(work: Work, spec: ComposeMode) -> JobRun:
    """Loads the parts, trains them together if domains are given, and stores them as one expert."""
    stored = read_inputs(work, "experts")  # ids by name
    with work.reading() as session:
        _require_named(session, stored or {})
        inputs = _read_composition(session, work, spec)
    if stored is None:
        write_inputs(work, "experts", dict(zip(inputs.names, inputs.experts, strict=True)))
    require_same(work, inputs.domains)
    inputs.base.check()
    tokenizer, method = load_tokenizer(inputs.base.folder), inputs.method
    learning: Learning = "gates" if spec.frozen else "experts"
    inits = tuple(  # each initialized from its source expert
        PartInit(f"part-{n}", part.name, method.config(**part.shape), inputs.experts[part.expert_id], part.name_there)
        for n, part in enumerate(inputs.parts)
    )
    part_set = PartSet(work.stable_id("expert"), inputs.base, inits, method.name, learning)
    write: Write
    if spec.domains:
        yield PartOrder([part.name for part in inputs.parts])
        write, losses = yield from train_parts(
            work, part_set, inputs.domains, inputs.retained, spec.training, tokenizer
        )
    else:
        active = yield from part_set.load(choose_device(work.settings.device))
        save, base = part_set.descriptor.save_expert, str(inputs.base.sha256)
        write = partial(save, active, part_set.id, base_sha256=base, tokenizer_sha256=tokenizer.sha256)
        losses = HeldOut()
    config = {
        "shape": {name: inputs.parts[0].shape[name] for name in method.base_fields},
        "parts": [asdict(part.after_training_on(spec.domains)) for part in inputs.parts],
        "composed_of": [{"id": id, "name": name} for id, name in zip(inputs.experts, inputs.names, strict=True)],
        "composed_on": spec.domains,
        "without": spec.without,
        "learning": learning if spec.domains else "nothing",
    }
    return store_step(
        work,
        spec,
        part_set,
        inputs.known,
        tokenizer,
        write,
        losses,
        base_id=inputs.base_id,
        seed_id=inputs.seed_id,
        parent_id=next(iter(inputs.experts)),
        config=config,
    )


def _require_named(session: Session, stored: Mapping[str, str]) -> None:
    """Raises TrainingError unless each id still has its name: checkpoints belong to these experts."""
    for name, id in stored.items():
        row = session.get(Expert, id)
        if row is None:
            raise TrainingError(
                f"The expert “{name}” was deleted since this composition started.",
                "Start a new job.",
            )
        if row.name != name:
            raise TrainingError(
                f"The expert “{name}” was renamed “{row.name}” since this composition started.",
                "Restore its name and retry, or start a new job.",
            )


def _read_composition(session: Session, work: Work, spec: ComposeMode) -> _Composition:
    rows = [expert_row(session, name) for name in spec.experts]
    parts = []
    for part in composition(rows, spec.without, bool(spec.domains)):
        source = session.get_one(Expert, part.expert_id)
        parts.append(replace(part, domains=tuple(name_now(session, source, name) for name in part.domains)))
    names = dict.fromkeys([*(domain for part in parts for domain in part.domains), *spec.domains])
    files = {name: domain_files(session, work.storage, name) for name in [*names, *spec.retain]}
    return _Composition(
        {row.id: work.storage.kept(row.artifact) for row in rows},
        tuple(row.name for row in rows),
        tuple(parts),
        get_parts_method(rows[0].method),
        work.storage.kept(rows[0].base),
        rows[0].base_id,
        rows[0].seed_id,
        tuple(files[name] for name in spec.domains),
        tuple(files[name] for name in names),
        tuple(files[name] for name in spec.retain),
    )


def train_parts(
    work: Work,
    part_set: PartSet,
    domains: Sequence[DomainFiles],
    retained: Sequence[DomainFiles],
    config: TrainingConfig,
    tokenizer: Tokenizer,
) -> Events[tuple[Write, HeldOut]]:
    """Trains as the method does. Returns a function that writes the parts, and the mean held-out losses (nats).

    Trains on equal samples of these domains. Each evaluation also measures the domains to retain.
    """
    yield from note_versions(work)
    packed = yield from _pack(work, domains, part_set, tokenizer, config.block_size)
    retained_packed = yield from _pack(work, retained, part_set, tokenizer, config.block_size)
    settings, method = work.settings, part_set.descriptor
    if method.uses_processes and not settings.processes and num_gpus(settings.device) > 1:
        yield Note(f"{method.title} experts are trained in one process. Set WORKBENCH_PROCESSES to use more.")
    where = (work.folder, settings.device, settings.processes, settings.threads, work.log)
    make_training = load_object(method.training)
    training: PartsTraining = make_training(part_set, TrainingData(packed, retained_packed, config), tokenizer, *where)
    losses = yield from last_losses(iter(training))
    return training.write, losses.of(domains)


def _pack(
    work: Work, domains: Sequence[DomainFiles], part_set: PartSet, tokenizer: Tokenizer, block_size: int
) -> Events[tuple[PackedDomain, ...]]:
    packed: list[PackedDomain] = []
    for domain in domains:
        folder = yield from pack(work, domain, tokenizer, part_set.base.folder, block_size)
        packed.append(PackedDomain(domain.name, part_set.id, folder))
    return tuple(packed)


def store_step(
    work: Work,
    spec: TrainMode | ComposeMode,
    part_set: PartSet,
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
    id, method = part_set.id, part_set.descriptor
    with work.storage.new(id) as folder:
        write(folder)
        size = sum(part_sizes(folder).values())
    kind = method.artifact_kind
    made = NewExpert(id, spec.expert, method.name, tuple(domains), size, held_out, kind, base_id, tokenizer.sha256)
    full_config = (asdict(spec.training) if spec.domains else {}) | dict(config)

    def register(session: Session) -> dict[str, Any]:
        parent = session.get(Expert, parent_id) if parent_id else None
        known_parent = parent.id if parent else None
        register_new_expert(session, work, made, seed_id=seed_id, parent_id=known_parent, config=full_config)
        create_mixture(session, MixtureSpec(name=spec.name, experts=[spec.expert]))
        parts = [part["name"] for part in config["parts"]]
        names = {"mixture": spec.name, "expert": spec.expert, **seed_of(session, seed_id)}
        return {**names, "parts": parts, "num_parameters": size}

    return register
