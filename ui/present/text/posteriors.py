"""Posteriors of domains as text: the estimate, and the block after which it is stable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.config import Evidence
from engine.mixing.evidence import AnyEvidence, EvidenceRule, name_of_reading
from ui.present.text.formatting import pluralize
from workbench.questions.posteriors import DomainPosterior, PosteriorMap

_ESTIMATES = {
    "updating": "by the updating method (newest block {newest_weight:.0%})",
    "mean": "as the mean of the blocks' posteriors",
}
_EVIDENCE: dict[Evidence, str] = {"prefix": "the whole prefix (paper)", "last_token": "the last token (released code)"}


def evidence_text(evidence: AnyEvidence | Mapping[str, Any]) -> str:
    """What a posterior sees: `the whole prefix (paper)`, or `decay 0.9, power 0.3`; also from stored JSON."""
    one = name_of_reading(evidence)
    return one.words if isinstance(one, EvidenceRule) else _EVIDENCE[one]


def posterior_title(answer: PosteriorMap) -> str:
    """`Posterior after 10 to 31 blocks of dev text, by the updating method …, evidence: the whole prefix (paper)`."""
    how = _ESTIMATES[answer.estimate].format(newest_weight=answer.newest_weight)
    used = sorted(row.num_blocks for row in answer.domains) or [answer.num_blocks]
    blocks = pluralize(used[-1], "block")
    blocks = blocks if used[0] == used[-1] else f"{used[0]:,} to {blocks}"
    return f"Posterior after {blocks} of {answer.split} text, {how}, evidence: {evidence_text(answer.evidence)}"


def stability_text(row: DomainPosterior) -> str:
    """The block after which no share moves by more than 0.05; none if that is in the last tenth."""
    if row.stable_after is None:
        return f"not within {pluralize(row.num_blocks, 'block')}"
    return f"after {row.stable_after} of {pluralize(row.num_blocks, 'block')}"


def describe_short_domains(answer: PosteriorMap) -> str:
    """Which domains have fewer blocks than requested; empty if none."""
    short = [f"{row.domain} ({row.num_blocks})" for row in answer.domains if row.num_blocks < answer.num_blocks]
    sentences = [
        f"Fewer blocks than requested, since no more are scored: {', '.join(short)}." if short else "",
        f"Less than one full block: {', '.join(answer.too_short)}." if answer.too_short else "",
    ]
    return " ".join(filter(None, sentences))
