"""A certificate of a removal as a job leaves it, for the screens that show one."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from workbench.answers.cards import ReportCard
from workbench.questions.removal import DomainRemoval, verdict
from workbench.registry.experts import get_expert
from workbench.registry.reports import register_report


def row(domain: str, *perplexities: float | None, why: str = "", **more: Any) -> dict[str, Any]:
    """A row of table 7: +Expert, –Expert, –Domain."""
    names = ("with_expert", "without_expert", "without_domain")
    known = dict(zip(names, perplexities, strict=True))
    return {"domain": domain, "num_tokens": 2048, "block_size": 128, **known, "why": why, **more}


def removed(domain: str, *perplexities: float | None, why: str = "") -> DomainRemoval:
    """The same as an answer."""
    return DomainRemoval.model_validate(row(domain, *perplexities, why=why))


def findings(expert: str, mixture: str, domain: str, ok: bool = True) -> dict[str, Any]:
    """What a certificate found: from 10 to 15, 20 without the domain; an eighth fewer tokens match."""
    interval = {"mean": 0.25, "low": 0.2, "high": 0.3}
    less = {"mean": -0.125, "low": -0.2, "high": -0.05}
    measures = ("match", "longest_run", "rouge_l")
    result = {
        "expert": expert,
        "mixture": mixture,
        "retrained": None,
        "domain": domain,
        "ok": ok,
        "identity": {
            "holds": ok,
            "num_tokens": 64,
            "num_numbers": 1000,
            "num_different": 0 if ok else 7,
            "num_not_finite": 0,
        },
        "heirs": [],
        "split": "test",
        "evidence": "prefix",
        "num_blocks": 100,
        "perplexity": [row(domain, 10.0, 15.0, 20.0), row("poems", None, None, None, why="Its dev text is short.")],
        "shares": {},
        "extraction": {
            "num_prefixes": 50,
            "num_documents": 40,
            "prefix_length": 32,
            "continuation_length": 32,
            "temperature": 0.0,
            "seed": 0,
            "confidence": 0.95,
            "means": {name: dict.fromkeys(measures, interval) for name in ("with_expert", "without_expert")},
            "changes": {"without_expert": dict.fromkeys(measures, less)},
        },
        "not_removed": "Removing this expert is not unlearning: what it shares stays.",
    }
    return {**result, "sentence": verdict(result)}


def certify(session: Session, expert: str, mixture: str, ok: bool = True) -> ReportCard:
    """Keeps such a certificate."""
    card = get_expert(session, expert)
    result = findings(expert, mixture, card.domain, ok)
    return register_report(session, "removal", f"Removal of {expert} from {mixture}", result, about_id=card.id)
