"""Evaluations: how well each expert predicts each domain's held-out text, and each expert's specialization.

Perplexities of a mixture can be had from those of its experts' tokens, accuracies cannot: which token a mixture finds
most probable depends on all tokens. So an accuracy is always that of a single expert.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload

from engine.statistics.perplexity import perplexity_of
from engine.text.split_names import HeldOutSplit
from workbench.answers.base import Answer
from workbench.answers.cards import EvaluationCard
from workbench.errors import BadSpecError
from workbench.registry.experts import expert_row
from workbench.registry.mixtures import mixture_row
from workbench.schema.job_states import UNFINISHED
from workbench.schema.job_tables import Job
from workbench.schema.tables import Artifact, Domain, Evaluation, Expert

USUAL_BLOCK, USUAL_TOKENS = 256, 20_000  # of a mixture that tells neither by its scores nor by its training

Cells = list[list[float | None]]  # expert × domain; None where nothing was measured


class Measure(Answer):
    """Which tokens of a domain were scored: how many, and in blocks of what size."""

    block_size: int
    num_tokens: int


class DomainMeasure(Measure):
    """The measure of one domain."""

    domain: str


class PerplexityTable(Answer):
    """Experts on the domains that they were scored on. All numbers of a domain are of the same tokens."""

    experts: list[str]
    domains: list[str]
    measures: list[Measure] = Field(description="One for each domain.")
    perplexity: Cells
    accuracy: Cells = Field(description="Share of tokens that were the most probable ones.")
    specialization: Cells = Field(
        description="Ratio to the perplexity of the domain's own expert; above 1 where an expert is worse than that."
    )

    def texts(self) -> list[DomainMeasure]:
        """Each domain with its measure."""
        pairs = zip(self.domains, self.measures, strict=True)
        return [DomainMeasure(domain=domain, **measure.model_dump()) for domain, measure in pairs]


def register_evaluation(
    session: Session,
    *,
    expert_id: str,
    domain_id: str,
    split: HeldOutSplit,
    block_size: int,
    num_tokens: int,
    log_likelihood: float,
    artifact: Artifact,
    num_correct: int | None = None,
    num_counted: int | None = None,
    job_id: str | None = None,
) -> EvaluationCard:
    """An expert's log-likelihood on a domain, summed (nats); a second one of the same measure replaces it.

    `num_counted` is the number of tokens that it is the sum of: of conversations those of answers; None: all.
    `num_correct` counts those of them that it found the most probable ones; None where that is not known.
    """
    if num_counted == 0:
        raise BadSpecError(["No token of an answer was scored."], "Score more tokens.")
    if num_tokens < 1 or not math.isfinite(log_likelihood):
        raise BadSpecError(
            [f"Scores need tokens and a finite log-likelihood, not {num_tokens} tokens with {log_likelihood} nats."]
        )
    measure = {
        "expert_id": expert_id,
        "domain_id": domain_id,
        "split": split,
        "block_size": block_size,
        "num_tokens": num_tokens,
    }
    row = session.scalar(select(Evaluation).filter_by(**measure)) or Evaluation(**measure)
    before: Artifact | None = row.artifact
    row.log_likelihood, row.num_correct, row.num_counted = log_likelihood, num_correct, num_counted
    row.artifact, row.job_id = artifact, job_id
    session.add(row)
    session.flush()
    users = select(func.count()).where(Evaluation.artifact_id == (before or artifact).id)
    if before is not None and not session.scalar(users):
        session.delete(before)
    return _card(row, row.expert.name, row.domain.name)


def list_evaluations(
    session: Session, *, expert: str | None = None, split: HeldOutSplit | None = None
) -> list[EvaluationCard]:
    """Evaluations by expert and domain, the newest first within each."""
    statement = select(Evaluation).options(joinedload(Evaluation.expert), joinedload(Evaluation.domain))
    if expert is not None:
        statement = statement.where(Evaluation.expert_id == expert_row(session, expert).id)
    if split is not None:
        statement = statement.where(Evaluation.split == split)
    cards = [_card(row, row.expert.name, row.domain.name) for row in session.scalars(statement)]
    return sorted(cards, key=lambda card: (card.expert, card.domain, -card.created_at))


def newest_evaluation(session: Session) -> tuple[int, float]:
    """How many evaluations there are, and when the newest was made; quick, to see whether anything has changed."""
    count, newest = session.execute(select(func.count(), func.max(Evaluation.created_at))).one()
    return int(count), float(newest or 0.0)


def measure_for(
    session: Session, mixture: str, split: HeldOutSplit, block_size: int | None = None, max_tokens: int | None = None
) -> tuple[int, int]:
    """The block size and the most tokens of a domain to score a mixture with; what is given stands.

    The rest is that of its stored scores as they are shown, so that new ones can be compared with them; without any,
    that of an unfinished job that scores it; without one, the block size is that of its experts' training.
    """
    experts = _experts(session, mixture)
    rows = session.scalars(
        select(Evaluation).where(Evaluation.expert_id.in_([expert.id for expert in experts]), Evaluation.split == split)
    ).all()
    shown = _comparable(rows, experts)
    if not shown and (measure := _measure_of_a_job(session, mixture, split)):
        return block_size or measure[0], max_tokens or measure[1]
    trained = [expert.config["block_size"] for expert in experts if "block_size" in expert.config]
    sizes = [row.block_size for row in shown] or trained or [USUAL_BLOCK]
    usual = Counter(sizes).most_common(1)[0][0]
    most = max((row.num_tokens for row in shown if row.block_size == usual), default=USUAL_TOKENS)
    return block_size or usual, max_tokens or most


def _measure_of_a_job(session: Session, mixture: str, split: HeldOutSplit) -> tuple[int, int] | None:
    for spec in session.scalars(select(Job.spec).where(Job.state.in_(UNFINISHED)).order_by(Job.created_at)):
        measure = spec.get("block_size"), spec.get("max_tokens")
        if spec.get("mixture") == mixture and spec.get("split", "test") == split and all(measure):
            return measure
    return None


def is_scored(session: Session, mixture: str, split: HeldOutSplit, block_size: int) -> bool:
    """Whether any expert of a mixture has scores of this block size."""
    ids = [expert.id for expert in _experts(session, mixture)]
    rows = select(Evaluation.id).where(Evaluation.expert_id.in_(ids), Evaluation.split == split)
    return session.scalar(rows.where(Evaluation.block_size == block_size).limit(1)) is not None


def perplexity_table(session: Session, mixture: str | None, split: HeldOutSplit = "test") -> PerplexityTable:
    """Perplexities of a mixture's experts (None: of all) on every domain they were scored on.

    All numbers of a domain are of the same tokens (`comparable`).
    """
    return table_of(session, _experts(session, mixture), split)


def table_of(session: Session, experts: Sequence[Expert], split: HeldOutSplit) -> PerplexityTable:
    """The same of these experts, in this order."""
    statement = select(Evaluation).options(joinedload(Evaluation.domain)).where(Evaluation.split == split)
    rows = session.scalars(statement.where(Evaluation.expert_id.in_([expert.id for expert in experts]))).all()
    domains = sorted({row.domain.name for row in rows})
    shown = _comparable(rows, experts)
    cells = {(row.expert_id, row.domain.name): row for row in shown}
    measures = {row.domain.name: Measure(block_size=row.block_size, num_tokens=row.num_tokens) for row in shown}

    def cells_of(number: Callable[[Evaluation], float | None]) -> Cells:
        rows = [[cells.get((expert.id, domain)) for domain in domains] for expert in experts]
        return [[None if cell is None else number(cell) for cell in row] for row in rows]

    table = cells_of(perplexity)
    return PerplexityTable(
        experts=[expert.name for expert in experts],
        domains=domains,
        measures=[measures[domain] for domain in domains],
        perplexity=table,
        accuracy=cells_of(accuracy),
        specialization=_specialization(
            table, [expert.domain.name if expert.domain else None for expert in experts], domains
        ),
    )


def perplexity(row: Evaluation) -> float:
    """exp of the mean negative log-likelihood per token that counts."""
    return perplexity_of(-row.log_likelihood / num_counted_tokens(row))


def accuracy(row: Evaluation) -> float | None:
    """The share of the tokens that count that were the expert's most probable ones; None if not known."""
    return None if row.num_correct is None else row.num_correct / num_counted_tokens(row)


def num_counted_tokens(row: Evaluation) -> int:
    """The number of tokens that a perplexity is of: those of answers in conversations, else all."""
    return row.num_tokens if row.num_counted is None else row.num_counted


def _experts(session: Session, mixture: str | None) -> list[Expert]:
    if mixture is not None:
        return [member.expert for member in mixture_row(session, mixture).members]
    return list(session.scalars(select(Expert).options(joinedload(Expert.domain)).order_by(Expert.name)))


def _comparable(rows: Sequence[Evaluation], experts: Sequence[Expert]) -> list[Evaluation]:
    tokenizers = {expert.id: expert.tokenizer_sha256 for expert in experts}
    return [row for by_expert in comparable(rows, tokenizers).values() for row in by_expert.values()]


def _specialization(table: Cells, homes: Sequence[str | None], domains: Sequence[str]) -> Cells:
    columns = [[row[number] for row in table] for number in range(len(domains))]
    best = [own_expert(column, homes, domain) for column, domain in zip(columns, domains, strict=True)]
    own = [None if row is None else column[row] for column, row in zip(columns, best, strict=True)]
    return [
        [None if value is None or base is None else value / base for value, base in zip(row, own, strict=True)]
        for row in table
    ]


def _card(row: Evaluation, expert: str, domain: str) -> EvaluationCard:
    return EvaluationCard.from_fields(
        row, expert=expert, domain=domain, perplexity=perplexity(row), accuracy=accuracy(row)
    )


def own_expert(perplexities: Sequence[float | None], homes: Sequence[str | None], domain: str) -> int | None:
    """The index of a domain's own expert: the best of those that it trained; None if none of these is scored.

    `perplexities` are those of the experts on this domain, `homes` the domains that trained the experts.
    """
    pairs = enumerate(zip(perplexities, homes, strict=True))
    scored = [(value, index) for index, (value, home) in pairs if home == domain and value is not None]
    return min(scored)[1] if scored else None


class TextMeasure(NamedTuple):
    """The scored text of a domain's split: exactly these tokens of a tokenizer, in blocks of this size."""

    num_tokens: int
    block_size: int
    tokenizer_sha256: str = ""
    num_counted: int | None = None  # tokens of answers, which depends on the rule of masks; None where all count

    def rank(self, num_experts: int) -> tuple[bool, int, int, int, str]:
        """Whether it compares experts, how many of its tokens these have scored in all, its length and its blocks."""
        counted = self.num_tokens if self.num_counted is None else self.num_counted
        return num_experts > 1, num_experts * counted, self.num_tokens, self.block_size, self.tokenizer_sha256


def comparable(
    rows: Iterable[Evaluation], tokenizers: Mapping[str, str] | None = None
) -> dict[str, dict[str, Evaluation]]:
    """The scores of each domain (id) on one text, by expert (id): the one with most scored tokens in all experts.

    So neither a quick evaluation of all nor a new expert without scores changes the text. One that a single expert has
    is taken only where no text has two.
    `tokenizers` are those of the experts by their ids; not needed where all have one, as in a mixture.
    """
    texts: dict[str, dict[TextMeasure, dict[str, Evaluation]]] = {}
    for row in rows:
        of_domain = texts.setdefault(row.domain_id, {})
        text = TextMeasure(row.num_tokens, row.block_size, (tokenizers or {}).get(row.expert_id, ""), row.num_counted)
        of_domain.setdefault(text, {})[row.expert_id] = row
    return {domain_id: of_domain[most_scored_text(of_domain)] for domain_id, of_domain in texts.items()}


def most_scored_text(texts: Mapping[TextMeasure, Collection[Any]]) -> TextMeasure:
    """Of texts with the scores of each the one with most scored tokens in all."""
    return max(texts, key=lambda text: text.rank(len(texts[text])))


def in_domain_scores(session: Session, split: HeldOutSplit) -> dict[str, EvaluationCard]:
    """By expert, its score on its own domain's text of a split: on the text that is compared, or its longest."""
    own = (Evaluation.expert_id == Expert.id) & (Evaluation.domain_id == Expert.domain_id)
    statement = select(Evaluation, Expert.name, Domain.name, Expert.tokenizer_sha256).join(Expert, own).join(Domain)
    shown, scores = _texts_shown(session, split), dict[str, EvaluationCard]()
    ranks = dict[str, tuple[bool, int, int]]()
    for row, expert, domain, tokenizer in session.execute(statement.where(Evaluation.split == split)).tuples():
        text = TextMeasure(row.num_tokens, row.block_size, tokenizer, row.num_counted)
        rank = (shown[row.domain_id] == text, row.num_tokens, row.block_size)
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


def _texts_shown(session: Session, split: HeldOutSplit) -> dict[str, TextMeasure]:
    """By domain id the text that `comparable` chooses of all experts."""
    measure = (Evaluation.num_tokens, Evaluation.block_size, Expert.tokenizer_sha256, Evaluation.num_counted)
    counted = select(Evaluation.domain_id, func.count(), *measure).join(Expert, Evaluation.expert_id == Expert.id)
    grouped = counted.where(Evaluation.split == split).group_by(Evaluation.domain_id, *measure)
    best: dict[str, tuple[int, TextMeasure]] = {}
    for domain, count, num_tokens, block_size, tokenizer, num_counted in session.execute(grouped).tuples():
        new = count, TextMeasure(num_tokens, block_size, tokenizer, num_counted)
        best[domain] = max(best.get(domain, new), new, key=lambda one: one[1].rank(one[0]))
    return {domain: text for domain, (_, text) in best.items()}
