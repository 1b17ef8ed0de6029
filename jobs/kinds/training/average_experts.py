"""Average the parameters of several experts into one model. Makes base, expert and mixture."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from engine.analysis.averaging import average
from engine.errors import ModelError
from engine.events import Event, Progress
from engine.files import ArtifactRef
from engine.methods.average.descriptor import METHOD as AVERAGE
from engine.methods.registry import get_method, method_of
from engine.models.multi_expert import MultiExpertModel
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.expert_files import keep_expert, register_new_expert
from jobs.kinds.shared.stable_ids import stable_id
from jobs.kinds.shared.tokens import DomainFiles, domain_files
from workbench.analysis.retrained_baselines import name_now
from workbench.errors import BadSpec
from workbench.kinds.training.average_experts import AverageExperts
from workbench.names import ensure_free
from workbench.registry.experts import AVERAGED, domains_of, expert_row
from workbench.registry.mixtures import create_mixture
from workbench.registry.priors import weights_under
from workbench.registry.tokenizers import with_another_tokenizer
from workbench.request_specs import MixtureSpec
from workbench.store.artifacts import register_artifact
from workbench.tables import Expert, Mixture


@dataclass(frozen=True)
class _Part:
    """An expert to average: its files, its base's files and its weight."""

    id: str
    name: str
    method: str
    base: ArtifactRef
    kept: ArtifactRef
    weight: float

    def load(self) -> Any:
        """Loads the expert with its base as a plain decoder."""
        return get_method(self.method).load_full_model(self.base, self.kept)


@dataclass(frozen=True)
class _Inputs:
    parts: tuple[_Part, ...]
    domains: tuple[DomainFiles, ...]
    seed_id: str | None
    tokenizer_sha256: str


def run(work: Work, spec: AverageExperts) -> Generator[Event, None, Register]:
    """Loads one expert after another, each with its base, and stores their average as a new model."""
    with work.reading() as session:
        inputs = _read(session, work, spec)
    weights = {part.name: part.weight for part in inputs.parts}
    lm = yield from _average({part.name: part.load for part in inputs.parts}, weights)
    key, base_id = stable_id(work.job_id, "expert"), stable_id(work.job_id, "base")
    model, tokenizer = MultiExpertModel(lm, [key], AVERAGE.new_placement()), load_tokenizer(inputs.parts[0].base.folder)
    with work.storage.new(base_id) as folder:
        AVERAGE.save_base(model, folder)
        tokenizer.save(folder)
    expert = keep_expert(
        work,
        model,
        key,
        spec.expert,
        inputs.domains,
        method=AVERAGE.name,
        dev_loss=None,
        base_sha256=work.storage.describe(base_id)[0],
        tokenizer_sha256=inputs.tokenizer_sha256,
    )
    config = {AVERAGED: [{"id": part.id, "name": part.name, "weight": part.weight} for part in inputs.parts]}

    def register(session: Session) -> dict[str, Any]:
        base = register_artifact(session, work.storage, base_id, "demix-base", job_id=work.job_id)
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


def _average(models: Mapping[str, Callable[[], Any]], weights: Mapping[str, float]) -> Generator[Event, None, Any]:
    """Passes progress on and returns the average."""
    for event in average(models, weights):
        if isinstance(event, Progress):
            yield event
    return event


def _read(session: Session, work: Work, spec: AverageExperts) -> _Inputs:
    ensure_free(session, Mixture, "mixture", spec.name)
    ensure_free(session, Expert, "expert", spec.expert)
    rows = [expert_row(session, name) for name in spec.experts]
    _require_full_models(rows)
    _require_one_tokenizer(rows)
    _require_one_seed(rows)
    names = dict.fromkeys(name_now(session, row, name) for row in rows for name in domains_of(row))
    seeds = {row.seed_id for row in rows}
    return _Inputs(
        tuple(_part(work, row, weight) for row, weight in zip(rows, _weights(session, spec), strict=True)),
        tuple(domain_files(session, work.storage, name) for name in names),
        seeds.pop() if len(seeds) == 1 else None,
        rows[0].tokenizer_sha256,
    )


def _part(work: Work, row: Expert, weight: float) -> _Part:
    return _Part(row.id, row.name, row.method, work.storage.kept(row.base), work.storage.kept(row.artifact), weight)


def _weights(session: Session, spec: AverageExperts) -> list[float]:
    """The weight of each expert, scaled to sum 1."""
    weights = spec.weights or [1.0] * len(spec.experts)
    if spec.prior is not None:
        weights = list(weights_under(session, spec.prior, spec.experts).values())
    if not sum(weights) > 0:
        raise BadSpec([f"The prior “{spec.prior}” has no share for any of these experts."])
    return [weight / sum(weights) for weight in weights]


def _require_full_models(rows: list[Expert]) -> None:
    for row in rows:
        if not (method := method_of(row.method)).is_full_model:
            raise ModelError(
                f"“{row.name}” cannot be averaged: an expert of {method.title} is not a full model with its base.",
                "Compose MoDE experts instead: workbench mode compose."
                if method.has_parts
                else "Average experts of another method, or mix these.",
            )


def _require_one_tokenizer(rows: list[Expert]) -> None:
    if others := with_another_tokenizer(rows[0], rows[1:]):
        raise ModelError(
            f"“{others[0].name}” has another tokenizer than “{rows[0].name}”, so they cannot be averaged.",
            "Average experts that started from the same seed.",
        )


def _require_one_seed(rows: list[Expert]) -> None:
    """Compares seeds by content, since a seed may be imported twice. Models of different seeds have no useful mean."""
    for row in rows:
        if row.seed is None:
            raise ModelError(
                f"“{row.name}” cannot be averaged: its seed model is not recorded.",
                "Leave it out, or mix the experts instead.",
            )
        first = rows[0].seed or row.seed
        if row.seed.artifact.sha256 != first.artifact.sha256:
            raise ModelError(
                f"Averaging needs experts of one seed model: “{row.name}” started from “{row.seed.name}”, "
                f"“{rows[0].name}” from “{first.name}”.",
                "Average experts that started from the same seed, or mix them instead.",
            )
