"""Train an expert of transformer layers next to a frozen backbone (MoDE §3.2, stage 1). Makes expert and mixture."""

from __future__ import annotations

from dataclasses import asdict, replace

from engine.methods.mode.expert_set import ExpertInit, ExpertSet
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Run, Work
from jobs.kinds.shared.mode_training import store_step, train_parts
from jobs.kinds.shared.tokens import domain_files, require_same
from workbench.kinds.training.train_mode import TrainMode
from workbench.registry.seeds import seed_row


def run(work: Work, spec: TrainMode) -> Run:
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
