"""Which model an answer is of: the hash of what computed it, and how that differs from the stored mixture."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from workbench.answers.posteriors import Manifest
from workbench.registry.experts import part_names
from workbench.schema.tables import Expert, Mixture, MixtureMember

_FEW = 3  # experts that a variant names
_DECIMALS = 6  # of a share


def setup_sha256(manifest: Manifest) -> str:
    """The hash of files, shares, parts and gate. Name, sampling, versions and precision are not part of it."""
    weights = {one.name: one.weight for one in manifest.experts}
    shares = _shares(weights, list(weights))
    experts = [[one.sha256, one.base_sha256, shares[one.name], one.parts] for one in manifest.experts]
    setup = [experts, manifest.tokenizer_sha256, manifest.gate, manifest.clustering_sha256]
    return hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()


def variant_of(session: Session, manifest: Manifest) -> str:
    """How a request differed from the stored model, such as *without demo/law*; empty if it did not."""
    given = {one.name: one.weight for one in manifest.experts}
    rows = session.scalars(select(Expert).where(Expert.name.in_(list(given))))
    parts = {row.name: part_names(row) for row in rows}
    changes = ["other parts"] if any(_differs(one.parts, parts.get(one.name)) for one in manifest.experts) else []
    options = selectinload(Mixture.members).joinedload(MixtureMember.expert)
    mixture = session.scalar(select(Mixture).where(Mixture.name == manifest.model).options(options))
    if mixture is None:
        return _with(changes)
    members = [one for one in mixture.members if one.active and one.expert.enabled and one.weight > 0]
    stored = {one.expert.name: one.weight for one in members}
    common = [name for name in stored if name in given]
    if _shares(stored, common) != _shares(given, common):
        changes.append("other weights")
    if mixture.gate != manifest.gate:
        changes.append("another gate")
    sentences = [
        _listed("without", [name for name in stored if name not in given]),
        _listed("with", [name for name in given if name not in stored]),
        _with(changes),
    ]
    return ", ".join(sentence for sentence in sentences if sentence)


def _differs(given: Sequence[str] | None, stored: Sequence[str] | None) -> bool:
    return given is not None and list(given) != list(stored or ())


def _shares(weights: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """The weights of some experts on the scale of their sum."""
    total = sum(weights[name] for name in names) or 1.0
    return {name: round(weights[name] / total, _DECIMALS) for name in names}


def _with(changes: Sequence[str]) -> str:
    return f"with {' and '.join(changes)}" if changes else ""


def _listed(word: str, names: Sequence[str]) -> str:
    if len(names) > _FEW:
        return f"{word} {len(names)} experts"
    return f"{word} {', '.join(names)}" if names else ""
