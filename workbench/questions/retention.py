"""Learning vs. forgetting: experts on target domains and on the retained domain (MoDE table 1)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, get_args

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import MixtureError
from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import DomainMeasure, Measure, PerplexityTable, table_of
from workbench.analysis.training_curves import count_retained
from workbench.answers.base import Answer
from workbench.formatting.shell_command import evaluate_command
from workbench.kinds.analysis import Evaluate
from workbench.questions.question import Question, Split
from workbench.registry.corpora import domain_row
from workbench.registry.experts import domains_of, expert_row, parameters_of, with_another_tokenizer
from workbench.registry.seeds import copied_expert
from workbench.schema.tables import Domain, Evaluation, Expert, MixtureMember
from workbench.store.storage import Storage

Metric = Literal["accuracy", "perplexity"]
ByDomain = dict[str, float | None]


class RetentionRow(Answer):
    """An expert's scores on the targets and on the retained domain; None without a score."""

    expert: str
    method: str
    is_seed: bool = Field(description="Whether the others began as copies of it.")
    num_parts: int
    num_parameters: int = Field(description="Its own, without its base.")
    total_parameters: int | None = Field(None, description="With its base; null where its seed model is not known.")
    accuracy: ByDomain
    perplexity: ByDomain
    learned: dict[Metric, float | None] = Field(description="Mean over the targets (of perplexities the geometric).")
    kept: dict[Metric, float | None]
    is_ahead: dict[Metric, bool | None] = Field(description="Whether no other has learned and kept more.")

    def on(self, domain: str) -> dict[Metric, float | None]:
        """Its numbers on one domain."""
        return {"accuracy": self.accuracy[domain], "perplexity": self.perplexity[domain]}


class MissingScores(Answer):
    """Scores that are missing for one reason, and the command that makes them."""

    experts: list[str]
    domains: list[str]
    why: str
    command: str


class SuggestedEvaluation(Answer):
    """An evaluation of all compared experts, with one number of tokens."""

    spec: Evaluate
    command: str


class Retention(Answer):
    """Experts on the target domains and on the retained domain."""

    retain: str
    targets: list[str]
    split: HeldOutSplit
    rows: list[RetentionRow]
    left_out: list[str] = Field(description="Experts with another tokenizer.")
    measures: list[DomainMeasure] = Field(description="Of the domains that are scored.")
    missing: list[MissingScores]
    evaluations: list[SuggestedEvaluation] = Field(description="Evaluations after which nothing is missing.")


class RetentionDefaults(Answer):
    """Domains to choose from in a comparison of experts."""

    retain: list[str] = Field(description="All domains, the likeliest to be retained first.")
    targets: list[str]


class RetentionRequest(Question[Retention]):
    """How much experts learned of the target domains and kept of the domain to retain, from stored scores."""

    path = "retention"
    rows = "rows"

    retain: str = Field(description="Domain to retain.")
    targets: list[str] = Field(
        default_factory=list, description="Target domains; empty takes those that trained the experts."
    )
    experts: list[str] = Field(
        default_factory=list, description="Experts to compare; empty takes all with scores on the domain."
    )
    split: Split = "test"

    def answer(self, session: Session, storage: Storage) -> Retention:
        """Accuracy and perplexity of experts on the targets and on the domain `retain`, by stored scores.

        No experts named: all that were scored on `retain` and share the tokenizer that most of these have; no targets
        named: what trained them. The expert that their seed is a copy of stands with them and says what there was to
        keep. All numbers of a domain are of the same tokens. Raises MixtureError where experts share no tokenizer.
        """
        rows, left_out = [expert_row(session, name) for name in self.experts], list[Expert]()
        if not rows:
            domain_id = domain_row(session, self.retain).id
            scored = select(Evaluation.expert_id).where(
                Evaluation.domain_id == domain_id, Evaluation.split == self.split
            )
            of_domain = session.scalars(select(Expert).where(Expert.id.in_(scored)).order_by(Expert.name))
            rows, left_out = _of_one_tokenizer(of_domain.all())
        if others := with_another_tokenizer(rows[0], rows[1:]):
            raise MixtureError(
                f"“{rows[0].name}” and “{others[0].name}” cannot be compared per token: their tokenizers differ.",
                "Name experts that were made from one seed.",
            )
        known = _seeds_of(session, rows)
        rows += [one for one in known if one not in rows]
        learners = [row for row in rows if row not in known] or rows
        domains = [*(self.targets or _domains_learned_by(learners, self.retain)), self.retain]
        for name in domains:
            domain_row(session, name)
        scores = _ScoreTable(table_of(session, rows, self.split), self.split)
        missing = [*_missing(session, rows, scores, domains)]
        return Retention.from_fields(
            self,
            targets=domains[:-1],
            rows=_with_ahead([_row(row, scores, domains, is_seed=row in known) for row in rows]),
            left_out=[row.name for row in left_out],
            measures=[
                DomainMeasure(domain=name, **scores.measures[name].model_dump())
                for name in domains
                if name in scores.measures
            ],
            missing=missing,
            evaluations=[*_evaluations(session, rows, scores, missing)],
        )


QUESTION = RetentionRequest


def suggest_defaults(session: Session, experts: Sequence[str]) -> RetentionDefaults:
    """Domains that a comparison of these experts is likely to need.

    The targets are what they learned, without what the expert learned that their seed is a copy of. Those
    domains come first that most of their trainings were to retain, then those that fewest of them learned, of these
    the ones that the copied expert had learned, and then the ones that most of them were scored on.
    """
    rows = [expert_row(session, name) for name in experts]
    known = _seeds_of(session, rows)
    learners = [row for row in rows if row not in known] or rows
    learned = Counter(name for row in learners for name in domains_of(row))
    ids = [row.id for row in rows]
    pairs = select(Domain.name, Evaluation.expert_id).join(Evaluation.domain).where(Evaluation.expert_id.in_(ids))
    scored = Counter(name for name, _ in session.execute(pairs.distinct()))
    retained, knew = count_retained(session, experts), _domains_learned_by(known, "")
    domains = session.scalars(select(Domain.name).order_by(Domain.name))
    order = sorted(domains, key=lambda name: (-retained[name], learned[name], name not in knew, -scored[name]))
    return RetentionDefaults(retain=order, targets=list(learned))


class _ScoreTable:
    """The table of evaluations by names."""

    def __init__(self, table: PerplexityTable, split: HeldOutSplit) -> None:
        self.split = split
        self.measures: dict[str, Measure] = dict(zip(table.domains, table.measures, strict=True))
        cells: dict[Metric, list[list[float | None]]] = {"accuracy": table.accuracy, "perplexity": table.perplexity}
        self._cells = {
            (metric, expert, domain): value
            for metric, rows in cells.items()
            for expert, row in zip(table.experts, rows, strict=True)
            for domain, value in zip(table.domains, row, strict=True)
        }

    def get(self, metric: Metric, expert: str, domain: str) -> float | None:
        return self._cells.get((metric, expert, domain))


def _seeds_of(session: Session, rows: Sequence[Expert]) -> list[Expert]:
    return [one for one in dict.fromkeys(copied_expert(session, row.seed) for row in rows) if one is not None]


def _domains_learned_by(rows: Sequence[Expert], retain: str) -> list[str]:
    return list(dict.fromkeys(domain for row in rows for domain in domains_of(row) if domain != retain))


def _of_one_tokenizer(rows: Sequence[Expert]) -> tuple[list[Expert], list[Expert]]:
    """The experts that share the most common tokenizer (of equally common ones the newest expert's), and the rest."""
    counts = Counter(row.tokenizer_sha256 for row in rows)
    common = max(rows, key=lambda row: (counts[row.tokenizer_sha256], row.created_at), default=None)
    chosen = [row for row in rows if common is not None and row.tokenizer_sha256 == common.tokenizer_sha256]
    return chosen, [row for row in rows if row not in chosen]


def _row(row: Expert, scores: _ScoreTable, domains: Sequence[str], *, is_seed: bool) -> RetentionRow:
    accuracy = {domain: scores.get("accuracy", row.name, domain) for domain in domains}
    perplexity = {domain: scores.get("perplexity", row.name, domain) for domain in domains}
    *targets, retain = domains
    parameters = parameters_of(row)
    logarithm = _mean([None if (value := perplexity[domain]) is None else math.log(value) for domain in targets])
    return RetentionRow.from_fields(
        row,
        expert=row.name,
        is_seed=is_seed,
        num_parts=len(row.config.get("parts", ())),
        total_parameters=parameters.total if parameters else None,
        accuracy=accuracy,
        perplexity=perplexity,
        learned={
            "accuracy": _mean([accuracy[domain] for domain in targets]),
            "perplexity": None if logarithm is None else math.exp(logarithm),
        },
        kept={"accuracy": accuracy[retain], "perplexity": perplexity[retain]},
        is_ahead={},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _with_ahead(rows: Sequence[RetentionRow]) -> list[RetentionRow]:
    """The rows, each with whether no other beats it in both; higher accuracies and lower perplexities are better."""
    ahead = {row.expert: dict[Metric, bool]() for row in rows}
    for metric in get_args(Metric):
        sign = 1 if metric == "accuracy" else -1
        pairs = {row.expert: (row.learned[metric], row.kept[metric]) for row in rows}
        known = {name: (sign * a, sign * b) for name, (a, b) in pairs.items() if a is not None and b is not None}
        for name, own in known.items():
            ahead[name][metric] = not any(a >= own[0] and b >= own[1] and (a, b) != own for a, b in known.values())
    metrics = get_args(Metric)
    return [
        row.model_copy(update={"is_ahead": {metric: ahead[row.expert].get(metric) for metric in metrics}})
        for row in rows
    ]


NOT_SCORED, NOT_COUNTED = "not scored on the same text", "scored before right tokens were counted"


@dataclass(frozen=True)
class _Gap:
    """Why a number is missing, and the mixture whose evaluation makes it; empty for an expert that is in none."""

    why: str
    mixture: str


def _missing(
    session: Session, rows: Sequence[Expert], scores: _ScoreTable, domains: Sequence[str]
) -> Iterator[MissingScores]:
    """The missing scores by the command that adds them: evaluations of one mixture for one reason."""
    mixtures = _mixtures(session, rows)
    cells_by_reason: dict[_Gap, list[tuple[str, str]]] = {}
    for row in rows:
        for domain in domains:
            if scores.get("accuracy", row.name, domain) is None:
                why = NOT_SCORED if scores.get("perplexity", row.name, domain) is None else NOT_COUNTED
                cells_by_reason.setdefault(_Gap(why, mixtures.get(row.id, "")), []).append((row.name, domain))
    for gap, cells in cells_by_reason.items():
        names, some = ([*dict.fromkeys(column)] for column in zip(*cells, strict=True))
        host = gap.mixture or min(mixtures.values(), default="MIXTURE")
        spec = _evaluation(host, [] if gap.mixture else names, some, scores, again=gap.why == NOT_COUNTED)
        yield MissingScores(experts=names, domains=some, why=gap.why, command=_command(spec))


def _evaluations(
    session: Session, rows: Sequence[Expert], scores: _ScoreTable, missing: Sequence[MissingScores]
) -> Iterator[SuggestedEvaluation]:
    """One evaluation for each reason; if no other expert was scored on as much text, all are scored."""
    mixtures = _mixtures(session, rows)
    if not mixtures:
        return
    members = Counter(mixtures.values())
    host = min(members, key=lambda name: (-members[name], name))
    for why in (NOT_SCORED, NOT_COUNTED):
        same = [gap for gap in missing if gap.why == why]
        some = [*dict.fromkeys(name for gap in same for name in gap.domains)]
        names = {name for gap in same for name in gap.experts} if why == NOT_COUNTED else {row.name for row in rows}
        also = [row.name for row in rows if row.name in names and mixtures.get(row.id) != host]
        if some:
            spec = _evaluation(host, also, some, scores, again=why == NOT_COUNTED)
            yield SuggestedEvaluation(spec=spec, command=_command(spec))


def _evaluation(mixture: str, experts: list[str], domains: list[str], scores: _ScoreTable, *, again: bool) -> Evaluate:
    """An evaluation with the measure of the longest text among these scores."""
    most = max(scores.measures.values(), key=lambda measure: measure.num_tokens, default=None)
    measure = {"block_size": most.block_size, "max_tokens": max(100, most.num_tokens)} if most else {}
    spec = {"mixture": mixture, "experts": experts, "domains": domains, "split": scores.split, "again": again}
    return Evaluate.model_validate(spec | measure)


def _command(spec: Evaluate) -> str:
    options = ["--experts", ",".join(spec.experts)] if spec.experts else []
    options += ["--domains", ",".join(spec.domains)]
    if spec.max_tokens:
        options += ["--block-size", str(spec.block_size), "--max-tokens", str(spec.max_tokens)]
    return evaluate_command(spec.mixture, spec.split, *options, *(["--again"] if spec.again else []))


def _mixtures(session: Session, rows: Sequence[Expert]) -> dict[str, str]:
    """The mixture of each expert by id, the first by name where there are several."""
    members = session.scalars(select(MixtureMember).where(MixtureMember.expert_id.in_([row.id for row in rows])))
    names = sorted(((one.mixture.name, one.expert_id) for one in members), reverse=True)
    return {expert_id: name for name, expert_id in names}
