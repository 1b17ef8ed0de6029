"""Average the parameters of several experts into one model. Makes base, expert and mixture."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from engine.analysis.averaging import average
from engine.methods.average.descriptor import METHOD as AVERAGE
from engine.models.multi_expert import MultiExpertModel
from engine.text.chat.own_template import copy_template
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Run, Work
from jobs.kinds.shared.averages import merge_experts, require_averageable, require_one_template, weighed_expert
from jobs.kinds.shared.expert_files import HeldOut, keep_expert, register_new_expert
from jobs.kinds.shared.tokens import domain_files
from workbench.analysis.changes.retrained_baselines import name_now
from workbench.errors import BadSpec
from workbench.kinds.training.average_experts import AverageExperts
from workbench.registry.experts import AVERAGED, domains_of, expert_row
from workbench.registry.mixtures import create_mixture
from workbench.registry.priors import weights_under
from workbench.specs.requests import MixtureSpec


def run(work: Work, spec: AverageExperts) -> Run:
    """Loads one expert after another, each with its base, and stores their average as a new model."""
    with work.reading() as session:
        rows = [expert_row(session, name) for name in spec.experts]
        require_averageable(rows)
        weights = _weights(session, spec)
        parts = [weighed_expert(work, row, weight) for row, weight in zip(rows, weights, strict=True)]
        names = dict.fromkeys(name_now(session, row, name) for row in rows for name in domains_of(row))
        domains = [domain_files(session, work.storage, name) for name in names]
        seeds, tokenizer_sha256 = {row.seed_id for row in rows}, rows[0].tokenizer_sha256
    require_one_template(parts)
    lm = yield from merge_experts(average, parts)
    key, base_id = work.stable_id("expert"), work.stable_id("base")
    model, tokenizer = MultiExpertModel(lm, [key], AVERAGE.new_placement()), load_tokenizer(parts[0].base.folder)
    with work.storage.new(base_id) as folder:
        AVERAGE.save_base(model, folder)
        tokenizer.save(folder)
        copy_template(parts[0].kept.folder, folder)
    expert = keep_expert(
        work,
        model,
        key,
        spec.expert,
        domains,
        method=AVERAGE.name,
        held_out=HeldOut(),
        base_id=base_id,
        tokenizer_sha256=tokenizer_sha256,
    )
    seed_id = seeds.pop() if len(seeds) == 1 else None
    config = {AVERAGED: [{"id": part.id, "name": part.name, "weight": part.weight} for part in parts]}

    def register(session: Session) -> dict[str, Any]:
        register_new_expert(session, work, expert, seed_id=seed_id, parent_id=None, config=config, trained_base=domains)
        create_mixture(session, MixtureSpec(name=spec.name, experts=[spec.expert]))
        return {"mixture": spec.name, "expert": spec.expert, "weights": {part.name: part.weight for part in parts}}

    return register


def _weights(session: Session, spec: AverageExperts) -> list[float]:
    """The weight of each expert, scaled to sum 1."""
    weights = spec.weights or [1.0] * len(spec.experts)
    if spec.prior is not None:
        weights = list(weights_under(session, spec.prior, spec.experts).values())
    if not sum(weights) > 0:
        raise BadSpec([f"The prior “{spec.prior}” has no share for any of these experts."])
    return [weight / sum(weights) for weight in weights]
