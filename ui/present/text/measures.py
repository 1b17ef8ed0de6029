"""Of which tokens perplexities are, which of them compare, and which scores are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from engine.text.split_names import HeldOutSplit
from ui.present.text.formatting import listed, pluralize
from workbench.analysis.perplexity_tables import DomainMeasure, PerplexityTable, TextMeasure, most_scored_text
from workbench.answers.cards import EvaluationCard, ExpertCard
from workbench.formatting.shell_command import evaluate_command
from workbench.questions.perplexities import MixedDomain

Value = TypeVar("Value")


def describe_measures(rows: Sequence[DomainMeasure]) -> str:
    """One sentence on the measures of domains; those in blocks of another size are named."""
    if not rows:
        return ""
    usual = most_frequent(row.block_size for row in rows)
    usual_words = f"In blocks of {usual:,} tokens, {_tokens([row for row in rows if row.block_size == usual])}"
    odd = [row for row in rows if row.block_size != usual]
    others = [f"{row.domain} in blocks of {row.block_size:,}, {row.num_tokens:,} tokens" for row in odd]
    return f"{usual_words}; but {', '.join(others)}." if others else f"{usual_words}."


def describe_table_measures(table: PerplexityTable) -> str:
    """The same sentence on a table of experts and domains."""
    return describe_measures(table.texts())


def describe_unknown_accuracy(table: PerplexityTable, mixture: str) -> str:
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
    """The scores of these experts on one text of each domain, chosen as that of a table is: see `most_scored_text`."""
    tokenizers = {expert.name: expert.tokenizer_sha256 for expert in experts}
    texts: dict[str, dict[TextMeasure, list[EvaluationCard]]] = {}
    for score in scores:
        if score.expert in tokenizers:
            text = TextMeasure(score.num_tokens, score.block_size, tokenizers[score.expert], score.num_counted)
            texts.setdefault(score.domain, {}).setdefault(text, []).append(score)
    return [score for of_domain in texts.values() for score in of_domain[most_scored_text(of_domain)]]


def most_frequent(values: Iterable[Value]) -> Value | None:
    """The value that is given most often; None without any."""
    return next((value for value, _ in Counter(values).most_common(1)), None)


def _tokens(rows: Sequence[DomainMeasure]) -> str:
    least, most = min(row.num_tokens for row in rows), max(row.num_tokens for row in rows)
    return f"{most:,} tokens of each domain" if least == most else f"{least:,} to {most:,} tokens of a domain"


def without_scores(experts: Sequence[str], split: HeldOutSplit) -> list[str]:
    """The experts that are not scored on any domain of a split."""
    from workbench.analysis.perplexity_tables import list_evaluations
    from workbench.registry.database import reading

    with reading() as session:
        scored = {evaluation.expert for evaluation in list_evaluations(session, split=split)}
    return [expert for expert in experts if expert not in scored]


def describe_missing_scores(experts: Sequence[str], split: HeldOutSplit) -> str:
    """Why there is no perplexity: the experts without scores."""
    unscored = without_scores(experts, split)
    if len(unscored) == len(experts):
        return f"There are no stored scores on the {split} split yet."
    if not unscored:
        return f"No domain was scored on the {split} split with every expert that takes part."
    return f"No stored scores on the {split} split yet: {listed(unscored)}."


def describe_left_out(rows: Sequence[MixedDomain], split: HeldOutSplit) -> str:
    """Which experts a mixture's numbers are without, since they are not scored on that text; empty where all are."""
    domains_of: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row.without:
            domains_of.setdefault(tuple(row.without), []).append(row.domain)
    parts = [
        f"without {listed(names)}" + (f" on {listed(domains)}" if len(domains) < len(rows) else "")
        for names, domains in domains_of.items()
    ]
    return f"These are numbers of the mixture {'; '.join(parts)}: {_NOT_SCORED(split)}." if parts else ""


def describe_without(names: Sequence[str], split: HeldOutSplit) -> str:
    """The same where the same experts are left out on every domain."""
    return f"These are numbers of the mixture without {listed(names)}: {_NOT_SCORED(split)}." if names else ""


def describe_unrouted(domains: Sequence[str]) -> str:
    """Which scored domains a gate by clusters has no distances for; empty where none."""
    if not domains:
        return ""
    return f"Left out, since distances of their text to the gate's clusters are not measured: {listed(domains)}."


_NOT_SCORED = "not scored on the same {} text yet".format

RULE = "Perplexity is per token: only numbers of the same tokenizer and the same block size compare."


class TokenMeasure(NamedTuple):
    """What a perplexity depends on besides the model and the text."""

    tokenizer_sha256: str
    block_size: int


def odd_measures(measures: Mapping[str, TokenMeasure]) -> dict[str, str]:
    """By name, in what a number differs from most of the others; nothing of those that compare with most."""
    usual = most_frequent(measures.values())
    return {
        name: _difference(measure, usual)
        for name, measure in measures.items()
        if usual is not None and measure != usual
    }


def describe_comparability(measures: Mapping[str, TokenMeasure], where: str = "the others are marked") -> str:
    """A note where not all numbers compare, with what most are of and where to see it; empty where they do."""
    usual, odd = most_frequent(measures.values()), odd_measures(measures)
    if usual is None or not odd:
        return ""
    most = f"{len(measures) - len(odd)} of {pluralize(len(measures), 'number')}"
    return f"{RULE} Here {most} are in blocks of {usual.block_size:,} tokens of one tokenizer; {where}."


def _difference(measure: TokenMeasure, usual: TokenMeasure) -> str:
    parts = [
        *(["another tokenizer"] if measure.tokenizer_sha256 != usual.tokenizer_sha256 else []),
        *([f"blocks of {measure.block_size:,}"] if measure.block_size != usual.block_size else []),
    ]
    return ", ".join(parts)
