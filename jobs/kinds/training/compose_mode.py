"""Compose MoDE experts and train their gates together (§3.2, stage 2). Makes expert and mixture.

The source experts do not change: the composition has its own copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from sqlalchemy.orm import Session

from engine.errors import TrainingError
from engine.events import PartOrder
from engine.files import ArtifactRef
from engine.methods.mode.config import ModeConfig
from engine.methods.mode.expert_set import ExpertInit, ExpertSet
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Run, Work
from jobs.kinds.shared.expert_files import HeldOut
from jobs.kinds.shared.mode_training import load, store_step, train_parts, write_parts
from jobs.kinds.shared.resume_guard import read_inputs, write_inputs
from jobs.kinds.shared.tokens import DomainFiles, domain_files, require_same
from workbench.analysis.changes.retrained_baselines import name_now
from workbench.kinds.training.compose_mode import ComposeMode
from workbench.registry.experts import expert_row
from workbench.schema.mode_composition import ModePart, composition, num_blocks_of
from workbench.schema.tables import Expert


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


def run(work: Work, spec: ComposeMode) -> Run:
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


def _named_as_now(session: Session, part: ModePart) -> ModePart:
    """The part with the current names of its domains."""
    row = session.get_one(Expert, part.expert_id)
    return replace(part, domains=tuple(name_now(session, row, name) for name in part.domains))


def _read(session: Session, work: Work, spec: ComposeMode) -> _Composition:
    rows = [expert_row(session, name) for name in spec.experts]
    parts = [_named_as_now(session, part) for part in composition(rows, spec.without, bool(spec.domains))]
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
