"""Train an expert of transformer layers beside a frozen backbone (MoDE §3.2, stage 1). Makes expert and mixture."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass, replace

from sqlalchemy.orm import Session

from engine.device import choose_device
from engine.events import Event
from engine.files import Kept
from engine.mode.active import ActiveExperts
from engine.mode.files import open_backbone
from engine.text.tokenizer import load_tokenizer
from jobs.kinds.expert_files import keep_parts
from jobs.kinds.ids import made_by
from jobs.kinds.mode_training import registering, train_parts
from jobs.kinds.tokens import DomainFiles, domain_files
from jobs.work import Register, Work
from workbench.mode_specs import TrainMode
from workbench.services.names import ensure_free
from workbench.services.seeds import seed_row
from workbench.tables import Expert, Mixture


@dataclass(frozen=True)
class _Inputs:
    seed_id: str
    seed: Kept
    seed_artifact_id: str
    domains: tuple[DomainFiles, ...]
    retained: tuple[DomainFiles, ...]


def run(work: Work, spec: TrainMode) -> Generator[Event, None, Register]:
    """Divides the backbone, trains what is put beside it, and keeps that alone."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    active = _start(work, spec, inputs.seed)
    tokenizer = load_tokenizer(inputs.seed.folder)
    loss = yield from train_parts(work, active, inputs.domains, inputs.retained, spec.training, tokenizer)
    expert = keep_parts(
        work, active, spec.expert, inputs.domains,
        dev_loss=loss, base_sha256=str(inputs.seed.sha256), tokenizer_sha256=tokenizer.sha256,
    )  # fmt: skip
    domain = spec.domains[0] if len(spec.domains) == 1 else None
    shapes = [asdict(active.model.shape_of(key)) for key in active.active]
    parts = [
        {"name": name, "domain": domain, "domains": spec.domains, "of": None, "shape": shape}
        for name, shape in zip(spec.parts, shapes, strict=True)
    ]
    return registering(
        work, spec, expert, base_id=inputs.seed_artifact_id, seed_id=inputs.seed_id, parent_id=None,
        tokenizer_sha256=tokenizer.sha256,
        config={"shape": asdict(spec.shape), "parts": parts, "learning": "experts"},
    )  # fmt: skip


def _start(work: Work, spec: TrainMode, seed: Kept) -> ActiveExperts:
    """The backbone with new experts, each of its own seed: alike they would learn alike."""
    model = open_backbone(seed, spec.shape.num_blocks).to(choose_device(work.settings.device))
    keys = [f"part-{number}" for number in range(spec.num_parts)]
    for number, key in enumerate(keys):
        model.add_expert(key, replace(spec.shape, seed=spec.shape.seed + number))
    return ActiveExperts(model, keys, made_by(work.job_id, "expert"), names=spec.parts)


def _read(session: Session, work: Work, spec: TrainMode) -> _Inputs:
    ensure_free(session, Mixture, "mixture", spec.name)
    ensure_free(session, Expert, "expert", spec.expert)
    seed = seed_row(session, spec.seed_model)
    domains, retained = (
        tuple(domain_files(session, work.storage, name) for name in names) for names in (spec.domains, spec.retain)
    )
    return _Inputs(seed.id, work.storage.kept(seed.artifact), seed.artifact_id, domains, retained)
