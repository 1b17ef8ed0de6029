"""Compose experts with parts and train their gates together (MoDE §3.2, stage 2). Makes expert and mixture.

The source experts do not change: the composition has its own copies.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from engine.device import choose_device
from engine.errors import TrainingError
from engine.events import Event, PartOrder
from engine.files import ArtifactRef
from engine.methods.parts.method import Learning, PartsMethod, get_parts_method
from engine.methods.parts.training import PartInit, PartSet
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.losses import HeldOut
from jobs.kinds.shared.parts_training import store_parts, train_parts
from jobs.kinds.shared.resume_guard import read_inputs, require_same, write_inputs
from jobs.kinds.shared.tokens import DomainFiles, domain_files
from workbench.analysis.changes.retrained_baselines import name_now
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.registry.experts import expert_row
from workbench.schema.composition import ComposedPart, composition
from workbench.schema.names import ensure_free
from workbench.schema.tables import Expert, Mixture


@dataclass(frozen=True)
class _Inputs:
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


def run(work: Work, spec: ComposeMode) -> Generator[Event, None, Register]:
    """Loads the parts, trains them together if domains are given, and stores them as one expert."""
    stored = read_inputs(work, "experts")  # ids by name
    with work.reading() as session:
        _require_named(session, stored or {})
        inputs = _read(session, work, spec)
    if stored is None:
        write_inputs(work, "experts", dict(zip(inputs.names, inputs.experts, strict=True)))
    require_same(work, inputs.domains)
    inputs.base.check()
    tokenizer = load_tokenizer(inputs.base.folder)
    part_set = _make_expert_set(work, spec, inputs)
    if spec.domains:
        yield PartOrder([part.name for part in inputs.parts])
        write, loss = yield from train_parts(work, part_set, inputs.domains, inputs.retained, spec.training, tokenizer)
    else:
        active = yield from part_set.load(choose_device(work.settings.device))
        save, base = part_set.descriptor.save_expert, str(inputs.base.sha256)
        write = partial(save, active, part_set.id, base_sha256=base, tokenizer_sha256=tokenizer.sha256)
        loss = HeldOut()
    return store_parts(
        work,
        spec,
        part_set,
        inputs.known,
        write,
        loss,
        base_id=inputs.base_id,
        seed_id=inputs.seed_id,
        parent_id=next(iter(inputs.experts)),
        tokenizer_sha256=tokenizer.sha256,
        config=_config(spec, inputs),
    )


def _config(spec: ComposeMode, inputs: _Inputs) -> dict[str, Any]:
    return {
        "shape": {name: inputs.parts[0].shape[name] for name in inputs.method.base_fields},
        "parts": [asdict(part.trained_on(spec.domains)) for part in inputs.parts],
        "composed_of": [{"id": id, "name": name} for id, name in zip(inputs.experts, inputs.names, strict=True)],
        "composed_on": spec.domains,
        "without": spec.without,
        "learning": ("gates" if spec.frozen else "experts") if spec.domains else "nothing",
    }


def _make_expert_set(work: Work, spec: ComposeMode, inputs: _Inputs) -> PartSet:
    """The set of all parts, each initialized from its source expert."""
    method = inputs.method
    experts = tuple(
        PartInit(f"part-{n}", part.name, method.config(**part.shape), inputs.experts[part.expert_id], part.name_there)
        for n, part in enumerate(inputs.parts)
    )
    learning: Learning = "gates" if spec.frozen else "experts"
    return PartSet(stable_id(work.job_id, "expert"), inputs.base, experts, method.name, learning)


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


def _named_as_now(session: Session, part: ComposedPart) -> ComposedPart:
    """The part with the current names of its domains."""
    row = session.get_one(Expert, part.expert_id)
    return replace(part, domains=tuple(name_now(session, row, name) for name in part.domains))


def _read(session: Session, work: Work, spec: ComposeMode) -> _Inputs:
    ensure_free(session, Mixture, spec.name)
    ensure_free(session, Expert, spec.expert)
    rows = [expert_row(session, name) for name in spec.experts]
    parts = [_named_as_now(session, part) for part in composition(rows, spec.without, bool(spec.domains))]
    names = dict.fromkeys([*(domain for part in parts for domain in part.domains), *spec.domains])
    files = {name: domain_files(session, work.storage, name) for name in [*names, *spec.retain]}
    return _Inputs(
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
