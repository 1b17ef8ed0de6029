"""Average the parameters of several experts into one model. Makes base, expert and mixture."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from engine.events import Event
from engine.methods.average.descriptor import METHOD as AVERAGE
from engine.models.multi_expert import MultiExpertModel
from engine.text.chat.own_template import copy_template
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Register, Work, stable_id
from jobs.kinds.shared.averages import (
    WeighedExpert,
    average_of,
    require_averageable,
    require_one_template,
    weighed_expert,
)
from jobs.kinds.shared.expert_files import keep_expert, register_new_expert
from jobs.kinds.shared.losses import HeldOut
from jobs.kinds.shared.tokens import DomainFiles, domain_files
from workbench.analysis.changes.retrained_baselines import name_now
from workbench.errors import BadSpecError
from workbench.kinds.training.mixtures import AverageExperts
from workbench.registry.experts import AVERAGED, domains_of, expert_row
from workbench.registry.mixtures import create_mixture
from workbench.registry.priors import weights_under
from workbench.schema.names import ensure_free
from workbench.schema.tables import Expert, Mixture
from workbench.specs.requests import MixtureSpec
from workbench.store import artifact_kinds
from workbench.store.artifacts import register_artifact


@dataclass(frozen=True)
class _Inputs:
    parts: tuple[WeighedExpert, ...]
    domains: tuple[DomainFiles, ...]
    seed_id: str | None
    tokenizer_sha256: str


def run(work: Work, spec: AverageExperts) -> Generator[Event, None, Register]:
    """Loads one expert after another, each with its base, and stores their average as a new model."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    require_one_template(inputs.parts)
    weights = {part.name: part.weight for part in inputs.parts}
    lm = yield from average_of(inputs.parts)
    key, base_id = stable_id(work.job_id, "expert"), stable_id(work.job_id, "base")
    model, tokenizer = MultiExpertModel(lm, [key], AVERAGE.new_placement()), load_tokenizer(inputs.parts[0].base.folder)
    with work.storage.new(base_id) as folder:
        AVERAGE.save_base(model, folder)
        tokenizer.save(folder)
        copy_template(inputs.parts[0].kept.folder, folder)
    expert = keep_expert(
        work,
        model,
        key,
        spec.expert,
        inputs.domains,
        method=AVERAGE.name,
        held_out=HeldOut(),
        base_sha256=work.storage.describe(base_id)[0],
        tokenizer_sha256=inputs.tokenizer_sha256,
    )
    config = {AVERAGED: [{"id": part.id, "name": part.name, "weight": part.weight} for part in inputs.parts]}

    def register(session: Session) -> dict[str, Any]:
        base = register_artifact(session, work.storage, base_id, artifact_kinds.BASE, job_id=work.job_id)
        register_new_expert(
            session,
            work,
            expert,
            base=base,
            seed_id=inputs.seed_id,
            parent_id=None,
            tokenizer_sha256=inputs.tokenizer_sha256,
            config=config,
            trained_base=inputs.domains,
        )
        create_mixture(session, MixtureSpec(name=spec.name, experts=[spec.expert]))
        return {"mixture": spec.name, "expert": spec.expert, "weights": weights}

    return register


def _read(session: Session, work: Work, spec: AverageExperts) -> _Inputs:
    ensure_free(session, Mixture, spec.name)
    ensure_free(session, Expert, spec.expert)
    rows = [expert_row(session, name) for name in spec.experts]
    require_averageable(rows)
    names = dict.fromkeys(name_now(session, row, name) for row in rows for name in domains_of(row))
    seeds = {row.seed_id for row in rows}
    return _Inputs(
        tuple(weighed_expert(work, row, weight) for row, weight in zip(rows, _weights(session, spec), strict=True)),
        tuple(domain_files(session, work.storage, name) for name in names),
        seeds.pop() if len(seeds) == 1 else None,
        rows[0].tokenizer_sha256,
    )


def _weights(session: Session, spec: AverageExperts) -> list[float]:
    """The weight of each expert, scaled to sum 1."""
    weights = spec.weights or [1.0] * len(spec.experts)
    if spec.prior is not None:
        weights = list(weights_under(session, spec.prior, spec.experts).values())
    if not sum(weights) > 0:
        raise BadSpecError([f"The prior “{spec.prior}” has no share for any of these experts."])
    return [weight / sum(weights) for weight in weights]
