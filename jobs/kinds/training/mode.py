"""MoDE (§3.2): trains experts of transformer layers next to a frozen backbone, and composes them with gates.

A composition has copies of its own: the source experts do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sqlalchemy.orm import Session

from engine.config import TrainingConfig
from engine.device import choose_device, num_gpus
from engine.errors import TrainingError
from engine.events import Note, PartOrder
from engine.files import ArtifactRef
from engine.inference.text_samples import TextSampler
from engine.methods.mode.active_experts import ActiveExperts
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.descriptor import METHOD
from engine.methods.mode.expert_set import ExpertInit, ExpertSet
from engine.methods.mode.files import assemble, save_parts
from engine.methods.mode.sharding.folders import gather_checkpoints, made_file
from engine.methods.mode.sharding.launch import most_processes, train_mpmd
from engine.methods.mode.sharding.task import ModeTask
from engine.methods.mode.sizes import part_sizes
from engine.methods.mode.training import TrainingData, train_active
from engine.text.tokenizer import Tokenizer, load_tokenizer
from engine.training.data import PackedDomain
from engine.training.memory.needs import require_memory_to_build
from jobs.attempt.work import Events, JobRun, Register, Work
from jobs.kinds.shared.expert_files import HeldOut, NewExpert, last_losses, register_new_expert
from jobs.kinds.shared.resume_guard import note_versions, read_inputs, write_inputs
from jobs.kinds.shared.tokens import DomainFiles, domain_files, pack, require_same
from workbench.analysis.changes.retrained_baselines import name_now
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.experts import expert_row
from workbench.registry.mixtures import create_mixture
from workbench.registry.seeds import seed_row
from workbench.schema.mode_composition import ModePart, composition, num_blocks_of
from workbench.schema.tables import Expert
from workbench.specs.requests import MixtureSpec

Write = Callable[[Path], None]  # fills the folder of an expert


def train(work: Work, spec: TrainMode) -> JobRun:
    """Divides the backbone into blocks, trains the experts next to it, and stores only the experts."""
    with work.reading() as session:
        row = seed_row(session, spec.seed_model)
        seed_id, base_id, seed = row.id, row.artifact_id, work.storage.kept(row.artifact)
        domains, retained = (
            [domain_files(session, work.storage, name) for name in names] for names in (spec.domains, spec.retain)
        )
    seed.check()
    require_same(work, domains, {f"seed model “{spec.seed_model}”": str(seed.sha256)})
    tokenizer = load_tokenizer(seed.folder)
    inits = tuple(  # each with a seed of its own: identical ones would learn the same
        ExpertInit(f"part-{number}", name, replace(spec.shape, seed=spec.shape.seed + number))
        for number, name in enumerate(spec.parts)
    )
    expert_set = ExpertSet(work.stable_id("expert"), seed, inits)
    write, losses = yield from train_parts(work, expert_set, domains, retained, spec.training, tokenizer)
    domain = spec.domains[0] if len(spec.domains) == 1 else None
    parts = [
        {"name": init.name, "domain": domain, "domains": spec.domains, "of": None, "shape": asdict(init.shape)}
        for init in inits
    ]
    return store_step(
        work,
        spec,
        expert_set,
        domains,
        tokenizer,
        write,
        losses,
        base_id=base_id,
        seed_id=seed_id,
        parent_id=None,
        config={"shape": asdict(spec.shape), "parts": parts, "learning": "experts"},
    )


@dataclass(frozen=True)
class _Composition:
    experts: dict[str, ArtifactRef]  # by id, in their order
    names: tuple[str, ...]  # of the experts
    parts: tuple[ModePart, ...]
    num_blocks: int
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
    tokenizer = load_tokenizer(inputs.base.folder)
    learning: Literal["gates", "experts"] = "gates" if spec.frozen else "experts"
    inits = tuple(  # each initialized from its source expert
        ExpertInit(f"part-{n}", part.name, ModeConfig(**part.shape), inputs.experts[part.expert_id], part.name_there)
        for n, part in enumerate(inputs.parts)
    )
    expert_set = ExpertSet(work.stable_id("expert"), inputs.base, inits, learning)
    if spec.domains:
        yield PartOrder([part.name for part in inputs.parts])
        write, losses = yield from train_parts(
            work, expert_set, inputs.domains, inputs.retained, spec.training, tokenizer
        )
    else:
        write, losses = write_parts((yield from load(work, expert_set)), expert_set, tokenizer), HeldOut()
    config = {
        "shape": {"num_blocks": inputs.num_blocks},
        "parts": [asdict(part.trained_on(spec.domains)) for part in inputs.parts],
        "composed_of": [{"id": id, "name": name} for id, name in zip(inputs.experts, inputs.names, strict=True)],
        "composed_on": spec.domains,
        "without": spec.without,
        "learning": learning if spec.domains else "nothing",
    }
    return store_step(
        work,
        spec,
        expert_set,
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
        num_blocks_of(rows[0]),
        work.storage.kept(rows[0].base),
        rows[0].base_id,
        rows[0].seed_id,
        tuple(files[name] for name in spec.domains),
        tuple(files[name] for name in names),
        tuple(files[name] for name in spec.retain),
    )


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
    full_config = (asdict(spec.training) if spec.domains else {}) | dict(config)

    def register(session: Session) -> dict[str, Any]:
        parent = session.get(Expert, parent_id) if parent_id else None
        known_parent = parent.id if parent else None
        register_new_expert(session, work, made, seed_id=seed_id, parent_id=known_parent, config=full_config)
        create_mixture(session, MixtureSpec(name=spec.name, experts=[spec.expert]))
        parts = [part["name"] for part in config["parts"]]
        return {"mixture": spec.name, "expert": spec.expert, "parts": parts, "num_parameters": size}

    return register
