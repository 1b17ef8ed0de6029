"""Forgetting (DEMix fig. 6, table 13): how perplexities of two mixtures differ on the same text, by stored scores."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import MixtureError
from workbench.services.generation import Plan, plan
from workbench.services.scores import Measure, load, scored_sets
from workbench.storage import Storage
from workbench.tables import Domain, Evaluation

ROLES = ("train", "novel")  # the paper's T and N


def forgetting(session: Session, storage: Storage, before: str, after: str, *, split: str = "test") -> dict[str, Any]:
    """Each domain on which both were scored on the same tokens, and the mean change over the domains of each role.

    `domains` holds {domain, role, num_tokens, block_size, before, after, change_percent}, `averages` {num_domains,
    change_percent} by role; perplexities are per token, a change above 0 is forgetting. `before` and `after` name
    mixtures or experts, each mixed by its own gate. Raises MixtureError when their tokens are not the same tokens.
    """
    plans = [plan(session, storage, name) for name in (before, after)]
    if plans[0].tokenizer_sha256 != plans[1].tokenizer_sha256:
        raise MixtureError(
            f"“{before}” and “{after}” must share their tokenizer to be compared per token, but do not.",
            "Compare models that were made from one seed.",
        )
    roles = dict(session.execute(select(Domain.name, Domain.role)).tuples().all())
    rows = []
    for (domain, num_tokens, block_size), both in _shared(session, plans, split).items():
        values = [_perplexity(storage, one, evaluations) for one, evaluations in zip(plans, both, strict=True)]
        rows.append({
            "domain": domain, "role": roles[domain], "num_tokens": num_tokens, "block_size": block_size,
            "before": values[0], "after": values[1], "change_percent": (values[1] / values[0] - 1) * 100,
        })  # fmt: skip
    return {"before": before, "after": after, "split": split, "domains": rows, "averages": _averages(rows)}


def _shared(session: Session, plans: Sequence[Plan], split: str) -> dict[Measure, tuple[list[Evaluation], ...]]:
    """Of each domain the scores of both on their longest common text, by domain, tokens and block size."""
    ours, theirs = (scored_sets(session, one, split) for one in plans)
    best: dict[str, Measure] = {}
    for measure in sorted(ours.keys() & theirs.keys()):
        best[measure[0]] = measure  # the last is the longest
    return {measure: (ours[measure], theirs[measure]) for measure in best.values()}


def _perplexity(storage: Storage, planned: Plan, evaluations: Sequence[Evaluation]) -> float:
    from engine.mixing.gates import make_gate
    from engine.scores import mixed_perplexity

    gate = make_gate(planned.gate, [expert.weight for expert in planned.experts])
    return mixed_perplexity(gate, *load(storage, evaluations))


def _averages(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The mean of the domains' changes, each of the same weight; None without a domain."""
    changes = {role: [row["change_percent"] for row in rows if row["role"] == role] for role in ROLES}
    return {
        role: {"num_domains": len(values), "change_percent": fmean(values) if values else None}
        for role, values in changes.items()
    }
