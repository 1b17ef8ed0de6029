"""Of which tokens a perplexity is: numbers of different block sizes must not be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ui.present.text.formatting import pluralize
from workbench.analysis.perplexity_tables import DomainMeasure, PerplexityTable
from workbench.answers.cards import EvaluationCard, ExpertCard
from workbench.formatting.shell_command import evaluate_command


def measure_words(rows: Sequence[DomainMeasure]) -> str:
    """One sentence on the measures of domains; those in blocks of another size are named."""
    if not rows:
        return ""
    usual = _usual(row.block_size for row in rows)
    usual_words = f"In blocks of {usual:,} tokens, {_tokens([row for row in rows if row.block_size == usual])}"
    odd = [row for row in rows if row.block_size != usual]
    others = [f"{row.domain} in blocks of {row.block_size:,}, {row.num_tokens:,} tokens" for row in odd]
    return f"{usual_words}; but {', '.join(others)}." if others else f"{usual_words}."


def table_measure_words(table: PerplexityTable) -> str:
    """The same sentence on a table of experts and domains."""
    pairs = zip(table.domains, table.measures, strict=True)
    return measure_words([DomainMeasure(domain=domain, **measure.model_dump()) for domain, measure in pairs])


def unknown_accuracy_words(table: PerplexityTable, mixture: str) -> str:
    """One sentence where scores were stored without their accuracy, and how to count it; none where all are known."""
    pairs = zip(table.perplexity, table.accuracy, strict=True)
    unknown = sum(one is not None and other is None for row in pairs for one, other in zip(*row, strict=True))
    if not unknown:
        return ""
    text = f"The accuracy of {pluralize(unknown, 'score')} is not known: right tokens were not counted yet."
    return f"{text} Score them again: {evaluate_command(mixture, 'test', '--again')}."


def in_percent(share: float | None) -> float | None:
    """A share as a percentage; what is not known stays so."""
    return None if share is None else 100 * share


def measure_text(score: EvaluationCard) -> str:
    """The measure of one number: its split, tokens and block size."""
    return f"{score.split}, {score.num_tokens:,} in blocks of {score.block_size:,}"


def comparable(scores: Sequence[EvaluationCard], experts: Sequence[ExpertCard]) -> list[EvaluationCard]:
    """The scores of these experts on one text of each domain: the one that most share, and of these the newest."""
    tokenizers = {one.name: one.tokenizer_sha256 for one in experts}
    by_measure: dict[tuple[str, str, int, int, str], list[EvaluationCard]] = {}
    for one in scores:
        if one.expert in tokenizers:
            text = one.domain, one.split, one.block_size, one.num_tokens, tokenizers[one.expert]
            by_measure.setdefault(text, []).append(one)
    best: dict[str, list[EvaluationCard]] = {}
    for (domain, *_), rows in by_measure.items():
        best[domain] = max(best.get(domain, rows), rows, key=_shared)
    return [one for rows in best.values() for one in rows]


def _shared(rows: Sequence[EvaluationCard]) -> tuple[int, float]:
    return len(rows), max(one.created_at for one in rows)


def _usual(sizes: Iterable[int]) -> int:
    return Counter(sizes).most_common(1)[0][0]


def _tokens(rows: Sequence[DomainMeasure]) -> str:
    least, most = min(row.num_tokens for row in rows), max(row.num_tokens for row in rows)
    return f"{most:,} tokens of each domain" if least == most else f"{least:,} to {most:,} tokens of a domain"
