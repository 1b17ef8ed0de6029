"""Train an expert with parts next to a frozen backbone (MoDE §3.2, stage 1). Makes expert and mixture."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, replace

from engine.events import Event
from engine.methods.parts.training import PartInit, PartSet
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.parts_training import store_parts, train_parts
from jobs.kinds.shared.resume_guard import require_same
from jobs.kinds.shared.tokens import domain_files
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.seeds import seed_row
from workbench.schema.names import ensure_free
from workbench.schema.tables import Expert, Mixture


def run(work: Work, spec: TrainMode) -> Generator[Event, None, Register]:
    """Trains the parts next to the backbone, and stores only the parts."""
    with work.reading() as session:
        ensure_free(session, Mixture, spec.name)
        ensure_free(session, Expert, spec.expert)
        row = seed_row(session, spec.seed_model)
        seed, seed_id, base_id = work.storage.kept(row.artifact), row.id, row.artifact_id
        domains, retained = (
            tuple(domain_files(session, work.storage, name) for name in names) for names in (spec.domains, spec.retain)
        )
    seed.check()
    require_same(work, domains, {f"seed model “{spec.seed_model}”": str(seed.sha256)})
    tokenizer = load_tokenizer(seed.folder)
    part_set = PartSet(stable_id(work.job_id, "expert"), seed, _expert_inits(spec), spec.method)
    write, loss = yield from train_parts(work, part_set, domains, retained, spec.training, tokenizer)
    domain = spec.domains[0] if len(spec.domains) == 1 else None
    parts = [
        {"name": one.name, "domain": domain, "domains": spec.domains, "of": None, "shape": asdict(one.shape)}
        for one in part_set.experts
    ]
    return store_parts(
        work,
        spec,
        part_set,
        domains,
        write,
        loss,
        base_id=base_id,
        seed_id=seed_id,
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
