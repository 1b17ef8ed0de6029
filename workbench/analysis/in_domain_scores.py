"""Scores of experts on the domains that trained them, for lists: one of each expert, whatever else was scored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import accuracy, perplexity
from workbench.registry.cards import EvaluationCard
from workbench.schema.tables import Domain, Evaluation, Expert

Measured = tuple[int, int]  # block size, number of tokens


def in_domain_scores(session: Session, split: HeldOutSplit) -> dict[str, EvaluationCard]:
    """By expert, its score on its own domain's text of a split: the one that most experts share, or its newest."""
    own = (Evaluation.expert_id == Expert.id) & (Evaluation.domain_id == Expert.domain_id)
    statement = select(Evaluation, Expert.name, Domain.name).join(Expert, own).join(Domain)
    shared, scores = _most_shared(session, split), dict[str, EvaluationCard]()
    ranks = dict[str, tuple[bool, float]]()
    for row, expert, domain in session.execute(statement.where(Evaluation.split == split)).tuples():
        rank = (shared[row.domain_id] == (row.block_size, row.num_tokens), row.created_at)
        if expert not in scores or rank > ranks[expert]:
            scores[expert], ranks[expert] = _card(row, expert, domain), rank
    return scores


def scored_domains(session: Session) -> Mapping[str, Mapping[str, int]]:
    """By expert and split, on how many domains it was scored; nothing of experts without a score."""
    columns = (Expert.name, Evaluation.split, func.count(Evaluation.domain_id.distinct()))
    statement = select(*columns).join(Expert, Evaluation.expert_id == Expert.id).group_by(Expert.id, Evaluation.split)
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for name, split, count in session.execute(statement.order_by(Evaluation.split)).tuples():
        counts[name][split] = count
    return counts


def _most_shared(session: Session, split: HeldOutSplit) -> dict[str, Measured]:
    """By domain id the text that most experts were scored on, and of these the newest (as `comparable` chooses)."""
    measure = (Evaluation.domain_id, Evaluation.block_size, Evaluation.num_tokens)
    counted = select(*measure, func.count(), func.max(Evaluation.created_at)).where(Evaluation.split == split)
    best: dict[str, tuple[int, float, Measured]] = {}
    for domain, block, tokens, count, newest in session.execute(counted.group_by(*measure)).tuples():
        best[domain] = max(best.get(domain, (0, 0.0, (0, 0))), (count, newest, (block, tokens)))
    return {domain: measured for domain, (_, _, measured) in best.items()}


def _card(row: Evaluation, expert: str, domain: str) -> EvaluationCard:
    return EvaluationCard(
        expert=expert,
        domain=domain,
        split=row.split,
        block_size=row.block_size,
        num_tokens=row.num_tokens,
        perplexity=perplexity(row),
        accuracy=accuracy(row),
        created_at=row.created_at,
    )
