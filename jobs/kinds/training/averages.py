"""The average of several experts' parameters: which may be averaged, and the sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.analysis.averaging import average
from engine.errors import ModelError
from engine.events import forward_progress
from engine.files import ArtifactRef
from engine.methods.average.descriptor import METHOD as AVERAGE
from engine.methods.export import save_model
from engine.methods.moe.checkpoint import as_moe
from engine.methods.registry import get_method, method_of
from engine.mixing.gate_type import build_gate
from engine.models.multi_expert import MultiExpertModel
from engine.text.chat.template import load_chat_template, template_folder
from engine.text.tokenizer import load_tokenizer
from jobs.attempt.work import Events, JobRun, Work
from jobs.kinds.shared.expert_files import HeldOut, keep_expert, register_new_expert, store_base
from jobs.kinds.shared.gguf import find_converter
from jobs.kinds.shared.tokens import domain_files
from jobs.kinds.training.exports import WRITING, WRITTEN, is_written, output_bytes, output_folder, write_model
from workbench.analysis.changes.retrained_baselines import name_now
from workbench.errors import BadSpecError
from workbench.exports.facts import expert_facts
from workbench.exports.model_card import CardFacts
from workbench.kinds.training.exchange import ADDS_NETWORKS, ExportMixture, mixture_complaints
from workbench.kinds.training.mixtures import AverageExperts
from workbench.registry.experts import AVERAGED, domains_of, expert_row, with_another_tokenizer
from workbench.registry.mixtures import create_mixture, mixture_row, taking_part
from workbench.registry.priors import weights_under
from workbench.schema.tables import Expert, Mixture
from workbench.specs.gates import load_gate
from workbench.specs.requests import MixtureSpec


def average_experts(work: Work, spec: AverageExperts) -> JobRun:
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
    key, first = work.stable_id("expert"), parts[0]
    model = MultiExpertModel(lm, [key], AVERAGE.new_placement())
    expert = keep_expert(
        work,
        model,
        key,
        spec.expert,
        domains,
        method=AVERAGE.name,
        held_out=HeldOut(),
        base_id=store_base(work, AVERAGE, model, load_tokenizer(first.base.folder), first.kept.folder),
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
        raise BadSpecError([f"The prior “{spec.prior}” has no share for any of these experts."])
    return [weight / sum(weights) for weight in weights]


_AVERAGE = (
    "The weighted mean of the parameters of several experts (Li et al. 2022, §3.3), as one model. It is not the "
    "mixture of their probabilities that the workbench computes."
)
_MOE = (
    "Experts that share everything but their feed-forward networks, as one mixture-of-experts model. In each layer it "
    "adds the outputs of all networks with the weights below, for every token; its routers are zeros and were not "
    "trained. It is not the mixture of probabilities of the next token that the workbench computes."
)


def export_mixture(work: Work, spec: ExportMixture) -> JobRun:
    """Loads one expert after another, merges them, and writes the folder."""
    if spec.format == "gguf":
        find_converter(work.settings)  # before anything is loaded
    with work.reading() as session:
        parts, card = _read_mixture(session, work, spec)
    require_one_template(parts)
    target, first = Path(spec.folder), parts[0]
    yield WRITING
    if not is_written(work, target, "folder"):
        lm = yield from merge_experts(as_moe if ADDS_NETWORKS[spec.format] else average, parts)
        with output_folder(work, target) as folder:
            yield from write_model(work, partial(save_model, lm, first.base.folder), first.kept.folder, card, folder)
    about = {"mixture": spec.mixture, "folder": spec.folder, "format": spec.format, "num_bytes": output_bytes(target)}
    yield WRITTEN
    return {**about, "weights": {part.name: part.weight for part in parts}}


def _read_mixture(session: Session, work: Work, spec: ExportMixture) -> tuple[list[WeighedExpert], CardFacts]:
    row = mixture_row(session, spec.mixture)
    if complaints := mixture_complaints(row, spec.format):
        raise BadSpecError(complaints)
    shares = _shares(row, spec.format)
    require_one_tokenizer([*shares])
    adds_networks = ADDS_NETWORKS[spec.format]
    if not adds_networks:
        require_averageable([*shares])
    facts = tuple(expert_facts(session, one) for one in shares)
    made_by = _MOE if adds_networks else _AVERAGE
    parts = [weighed_expert(work, one, share) for one, share in shares.items()]
    return parts, CardFacts(spec.mixture, spec.format, facts, tuple(shares.values()), made_by)


def _shares(row: Mixture, format: str) -> dict[Expert, float]:
    """The share of each expert that takes part: of the gate where it is exported, of the prior for an average."""
    experts = taking_part(row)
    weights = {member.expert: member.weight for member in row.members if member.expert in experts}
    if ADDS_NETWORKS[format]:  # a gate of the k largest weights leaves the others out
        logs = build_gate(load_gate(row.gate), [*weights.values()]).start().log_weights().tolist()
        weights = {one: weights[one] for one, log in zip(weights, logs, strict=True) if math.isfinite(log)}
    return {one: weight / sum(weights.values()) for one, weight in weights.items()}


@dataclass(frozen=True)
class WeighedExpert:
    """An expert that becomes a part of a new model: its files, its base's files and its weight."""

    id: str
    name: str
    method: str
    base: ArtifactRef
    kept: ArtifactRef
    weight: float

    def load(self) -> Any:
        """Loads the expert with its base as a plain decoder."""
        return get_method(self.method).load_full_model(self.base, self.kept)


def weighed_expert(work: Work, row: Expert, weight: float) -> WeighedExpert:
    """The files of an expert, and its weight."""
    base, kept = work.storage.kept(row.base), work.storage.kept(row.artifact)
    return WeighedExpert(row.id, row.name, row.method, base, kept, weight)


def merge_experts(merge: Callable[..., Any], parts: Sequence[WeighedExpert], phase: str = "") -> Events[Any]:
    """Passes the progress of `merge(loaders, weights)` on, of a phase if any; returns its model, a plain decoder."""
    loaders, weights = {part.name: part.load for part in parts}, {part.name: part.weight for part in parts}
    return (yield from forward_progress(merge(loaders, weights), phase=phase))


def require_one_template(parts: Sequence[WeighedExpert]) -> None:
    """Raises ModelError where experts write conversations in different ways: one model has one template."""
    templates = [load_chat_template(template_folder(part.base.folder, part.kept.folder)) for part in parts]
    hashes = [template.sha256 if template else "" for template in templates]
    for part, sha256 in zip(parts, hashes, strict=True):
        if sha256 != hashes[0]:
            raise ModelError(
                f"“{parts[0].name}” and “{part.name}” have different chat templates, so no prompt suits one model of "
                "both.",
                "Leave one of them out.",
            )


def require_averageable(rows: Sequence[Expert]) -> None:
    """Raises ModelError unless these experts are full models of one seed model with one tokenizer.

    Seeds are compared by content, since one may be imported twice. Models of different seeds have no useful mean.
    """
    for row in rows:
        if not (method := method_of(row.method)).is_full_model:
            raise ModelError(
                f"“{row.name}” cannot be averaged: an expert of {method.title} is not a full model with its base.",
                "Compose experts with parts instead: workbench mode compose."
                if method.has_parts
                else "Average experts of another method, or mix these.",
            )
    require_one_tokenizer(rows)
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


def require_one_tokenizer(rows: Sequence[Expert]) -> None:
    """Raises ModelError unless all experts read the same tokens."""
    if others := with_another_tokenizer(rows[0], rows[1:]):
        raise ModelError(
            f"“{others[0].name}” has another tokenizer than “{rows[0].name}”, so they cannot become one model.",
            "Choose experts that started from the same seed.",
        )
