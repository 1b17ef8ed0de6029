"""Train an expert with parts next to a frozen backbone (MoDE §3.2, stage 1). Makes expert and mixture."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass, replace

from sqlalchemy.orm import Session

from engine.events import Event
from engine.files import ArtifactRef
from engine.methods.parts.part_set import PartInit, PartSet
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.parts_training import keep_parts, register_step, train_parts
from jobs.kinds.shared.resume_guard import require_same
from jobs.kinds.shared.tokens import DomainFiles, domain_files
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.seeds import seed_row
from workbench.schema.names import ensure_free
from workbench.schema.tables import Expert, Mixture


@dataclass(frozen=True)
class _Inputs:
    seed_id: str
    seed: ArtifactRef
    seed_artifact_id: str
    domains: tuple[DomainFiles, ...]
    retained: tuple[DomainFiles, ...]


def run(work: Work, spec: TrainMode) -> Generator[Event, None, Register]:
    """Trains the parts next to the backbone, and stores only the parts."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    inputs.seed.check()
    require_same(work, inputs.domains, {f"seed model “{spec.seed_model}”": str(inputs.seed.sha256)})
    tokenizer = load_tokenizer(inputs.seed.folder)
    part_set = PartSet(stable_id(work.job_id, "expert"), inputs.seed, _expert_inits(spec), spec.method)
    write, loss = yield from train_parts(work, part_set, inputs.domains, inputs.retained, spec.training, tokenizer)
    expert = keep_parts(work, part_set, spec.expert, inputs.domains, write, loss)
    domain = spec.domains[0] if len(spec.domains) == 1 else None
    parts = [
        {"name": one.name, "domain": domain, "domains": spec.domains, "of": None, "shape": asdict(one.shape)}
        for one in part_set.experts
    ]
    return register_step(
        work,
        spec,
        expert,
        base_id=inputs.seed_artifact_id,
        seed_id=inputs.seed_id,
        parent_id=None,
        tokenizer_sha256=tokenizer.sha256,
        config={"shape": asdict(spec.method_config), "parts": parts, "learning": "experts"},
    )


def _expert_inits(spec: TrainMode) -> tuple[PartInit, ...]:
    """New experts, each with its own seed: identical ones would learn the same."""
    shape = spec.method_config
    return tuple(
        PartInit(f"part-{number}", name, replace(shape, seed=shape.seed + number))
        for number, name in enumerate(spec.parts)
    )


def _read(session: Session, work: Work, spec: TrainMode) -> _Inputs:
    ensure_free(session, Mixture, spec.name)
    ensure_free(session, Expert, spec.expert)
    seed = seed_row(session, spec.seed_model)
    domains, retained = (
        tuple(domain_files(session, work.storage, name) for name in names) for names in (spec.domains, spec.retain)
    )
    return _Inputs(seed.id, work.storage.kept(seed.artifact), seed.artifact_id, domains, retained)
