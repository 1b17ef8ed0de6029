"""Of an answer to compare: which model it is of, how that differs from the stored one, and the domain of its prompt."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from engine.mixing.gate_type import gate_type
from workbench.answers.history import NewAnswer
from workbench.answers.posteriors import Manifest
from workbench.registry.experts import part_names
from workbench.schema.tables import Domain, Expert, Mixture, MixtureMember
from workbench.specs.gates import load_gate

_FEW = 3  # experts that a variant names
_DECIMALS = 6  # of a share


def setup_sha256(manifest: Manifest) -> str:
    """The hash of files, shares, parts and gate. Name, sampling, versions and precision are not part of it."""
    weights = {expert.name: expert.weight for expert in manifest.experts}
    shares = _shares(weights, list(weights))
    experts = [[expert.sha256, expert.base_sha256, shares[expert.name], expert.parts] for expert in manifest.experts]
    setup = [experts, manifest.tokenizer_sha256, manifest.gate, manifest.clustering_sha256]
    return hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()


def variant_of(session: Session, manifest: Manifest) -> str:
    """How a request differed from the stored model, such as *without demo/law*; empty if it did not."""
    given = {expert.name: expert.weight for expert in manifest.experts}
    rows = session.scalars(select(Expert).where(Expert.name.in_(list(given))))
    parts = {row.name: part_names(row) for row in rows}
    has_other_parts = any(expert.parts not in (None, parts.get(expert.name, [])) for expert in manifest.experts)
    changes = ["other parts"] if has_other_parts else []
    options = selectinload(Mixture.members).joinedload(MixtureMember.expert)
    mixture = session.scalar(select(Mixture).where(Mixture.name == manifest.model).options(options))
    if mixture is None:
        return _with(changes)
    members = [member for member in mixture.members if member.takes_part]
    stored = {member.expert.name: member.weight for member in members}
    common = [name for name in stored if name in given]
    if _shares(stored, common) != _shares(given, common):
        changes.append("other weights")
    if mixture.gate != manifest.gate:
        changes.append("another gate")
    sentences = [
        _names_text("without", [name for name in stored if name not in given]),
        _names_text("with", [name for name in given if name not in stored]),
        _with(changes),
    ]
    return ", ".join(sentence for sentence in sentences if sentence)


def _shares(weights: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    total = sum(weights[name] for name in names) or 1.0
    return {name: round(weights[name] / total, _DECIMALS) for name in names}


def _with(changes: Sequence[str]) -> str:
    return f"with {' and '.join(changes)}" if changes else ""


def _names_text(word: str, names: Sequence[str]) -> str:
    if len(names) > _FEW:
        return f"{word} {len(names)} experts"
    return f"{word} {', '.join(names)}" if names else ""


LEAST_SHARE = 0.5  # of the weight, which the leading domain must exceed
_SHOWN = 8  # domains whose weights are stored


def domain_weights(session: Session, answers: Sequence[NewAnswer]) -> dict[str, float]:
    """The weight of each domain after the prompt, the largest first; empty where no answer says anything of it.

    The mean over those answers whose models cover the most domains. A gate with the same weights for every text, and a
    model of shares domain, say nothing of the prompt.
    """
    names = {name for answer in answers for name in _first_weights(answer)}
    rows = session.execute(select(Expert.name, Domain.name).join(Expert.domain).where(Expert.name.in_(names)))
    domains: dict[str, str] = dict(rows.tuples().all())
    by_answer = [_by_domain(_first_weights(answer), domains) for answer in answers]
    most = max((len(shares) for shares in by_answer), default=0)
    if most < 2:
        return {}
    chosen = [shares for shares in by_answer if len(shares) == most]
    totals: dict[str, float] = defaultdict(float)
    for shares in chosen:
        for domain, weight in shares.items():
            totals[domain] += weight / len(chosen)
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
    return {domain: round(weight, 4) for domain, weight in ordered}


def leading_domain(weights: Mapping[str, float]) -> str:
    """The domain with more than half of the weight; empty if none has."""
    return next((domain for domain, weight in weights.items() if weight > LEAST_SHARE), "")


def _first_weights(answer: NewAnswer) -> Mapping[str, float]:
    """The weights of experts before the first token of an answer; empty if they are those of every text."""
    if not answer.expert_weights or gate_type(load_gate(answer.manifest.gate).kind).is_constant:
        return {}
    return answer.expert_weights[0]


def _by_domain(weights: Mapping[str, float], domains: Mapping[str, str]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for expert, weight in weights.items():
        if expert in domains:
            totals[domains[expert]] += weight
    return totals
