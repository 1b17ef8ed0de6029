"""Export a mixture as one model: the average of its experts, or a mixture of experts of transformers."""

from __future__ import annotations

import math
from collections.abc import Generator
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from engine.analysis.averaging import average
from engine.events import Event
from engine.methods.moe.checkpoint import as_moe
from engine.mixing.gate_type import build_gate
from jobs.attempt.work import Register, Work
from jobs.kinds.shared.averages import (
    WeighedExpert,
    merged,
    require_averageable,
    require_one_template,
    require_one_tokenizer,
    weighed_expert,
)
from jobs.kinds.shared.exports import write_model, writing, written
from jobs.kinds.shared.gguf import find_converter
from jobs.kinds.shared.outputs import is_written, output_bytes, output_folder
from workbench.errors import BadSpecError
from workbench.exports.facts import expert_facts
from workbench.exports.model_card import CardFacts
from workbench.kinds.training.exchange import FORMATS, ExportMixture, mixture_complaints
from workbench.registry.mixtures import mixture_row, taking_part
from workbench.schema.tables import Expert, Mixture
from workbench.specs.gates import load_gate

_AVERAGE = (
    "The weighted mean of the parameters of several experts (Li et al. 2022, §3.3), as one model. It is not the "
    "mixture of their probabilities that the workbench computes."
)
_MOE = (
    "Experts that share everything but their feed-forward networks, as one mixture-of-experts model. In each layer it "
    "adds the outputs of all networks with the weights below, for every token; its routers are zeros and were not "
    "trained. It is not the mixture of probabilities of the next token that the workbench computes."
)


def run(work: Work, spec: ExportMixture) -> Generator[Event, None, Register]:
    """Loads one expert after another, merges them, and writes the folder."""
    target = Path(spec.folder)
    if spec.format == "gguf":
        find_converter(work.settings)  # before anything is loaded
    with work.reading() as session:
        parts, card = _read(session, work, spec)
    require_one_template(parts)
    yield writing()
    if not is_written(work, target, "folder"):
        lm = yield from merged(as_moe if FORMATS[spec.format].adds_networks else average, parts)
        with output_folder(work, target) as folder:
            yield from write_model(work, lm, parts[0].base.folder, parts[0].kept.folder, card, folder)
    num_bytes = output_bytes(target)
    yield written()

    def register(_: Session) -> dict[str, Any]:
        weights = {part.name: part.weight for part in parts}
        return {
            "mixture": spec.mixture,
            "folder": spec.folder,
            "format": spec.format,
            "num_bytes": num_bytes,
            "weights": weights,
        }

    return register


def _read(session: Session, work: Work, spec: ExportMixture) -> tuple[list[WeighedExpert], CardFacts]:
    row = mixture_row(session, spec.mixture)
    if complaints := mixture_complaints(row, spec.format):
        raise BadSpecError(complaints)
    shares = _shares(row, spec.format)
    require_one_tokenizer([*shares])
    adds_networks = FORMATS[spec.format].adds_networks
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
    if FORMATS[format].adds_networks:  # a gate of the k largest weights leaves the others out
        logs = build_gate(load_gate(row.gate), [*weights.values()]).start().log_weights().tolist()
        weights = {one: weights[one] for one, log in zip(weights, logs, strict=True) if math.isfinite(log)}
    return {one: weight / sum(weights.values()) for one, weight in weights.items()}
