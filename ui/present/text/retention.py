"""Learning vs. forgetting of experts, and forgetting of one (DEMix table 13), as rows and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from engine.methods.registry import method_of
from ui.present.text.formatting import listed, parameters_text, pluralize
from ui.present.text.measures import describe_measures, in_percent
from workbench.formatting.number_format import change, percent, perplexity
from workbench.questions.forgetting import Forgetting
from workbench.questions.retention import Metric, Retention, RetentionRow

_METRICS: tuple[Metric, ...] = get_args(Metric)
ByMetric = Mapping[Metric, float | None]
HOW_TO_READ = (
    "An expert is ahead when no other is at least as good in both and better in one. Accuracy is the "
    "share of tokens that were the most probable one; a mean of perplexities over targets is the geometric one."
)


def number_of(answer: Retention) -> Metric:
    """The measure to compare by: accuracy where every comparable expert has it, else perplexity."""
    known = {metric: sum(row.is_ahead[metric] is not None for row in answer.rows) for metric in _METRICS}
    return "accuracy" if known["accuracy"] and known["accuracy"] == known["perplexity"] else "perplexity"


class ExpertPosition(NamedTuple):
    """An expert with scores of one metric for both learning and retention."""

    row: RetentionRow
    learned: float
    kept: float
    is_ahead: bool


def placed_experts(answer: Retention, number: Metric) -> list[ExpertPosition]:
    """The experts with scores for both learning and retention."""
    return [
        ExpertPosition(row, learned, kept, bool(row.is_ahead[number]))
        for row in answer.rows
        if (learned := row.learned[number]) is not None and (kept := row.kept[number]) is not None
    ]


def retention_rows(answer: Retention) -> list[dict[str, Any]]:
    """Every expert with every number, the best retention first, unknown ones last."""
    return [_row(answer, row) for row in _in_order(answer)]


def verdict_title(answer: Retention) -> str:
    """The title of the comparison: its metric and its domains."""
    learned, number = listed(list(answer.targets)), number_of(answer)
    return f"{number.capitalize()} on the target domains ({learned}) and on the retained domain ({answer.retain})"


def verdict_rows(answer: Retention) -> list[dict[str, Any]]:
    """Every expert with what it learned on average and what it kept, in the same order: few columns for any targets."""
    number = number_of(answer)
    unit = "%" if number == "accuracy" else number
    return [
        {
            "expert": row.expert,
            "method": method_label(row),
            "parameters": parameters_text(row.total_parameters),
            f"learned ({unit})": _in_unit(row.learned, number),
            f"kept ({unit})": _in_unit(row.kept, number),
            "ahead": _ahead_text(row, number),
        }
        for row in _in_order(answer)
    ]


def domain_rows(answer: Retention) -> list[dict[str, Any]]:
    """The same experts on one domain after another, a row for each; the mean of several targets behind these."""
    rows = _in_order(answer)
    return [
        {
            "domain": domain,
            "expert": row.expert,
            "accuracy (%)": in_percent(numbers["accuracy"]),
            "perplexity": numbers["perplexity"],
        }
        for on_one in zip(*(_by_domain(answer, row) for row in rows), strict=True)
        for row, (domain, numbers) in zip(rows, on_one, strict=True)
    ]


def _by_domain(answer: Retention, row: RetentionRow) -> list[tuple[str, ByMetric]]:
    targets = [(domain, row.on(domain)) for domain in answer.targets]
    means = [("mean of targets", row.learned)] if len(targets) > 1 else []
    return [*targets, *means, (f"{answer.retain} (kept)", row.kept)]


def _in_unit(numbers: ByMetric, number: Metric) -> float | None:
    """A share in percent, a perplexity as it is."""
    return in_percent(numbers[number]) if number == "accuracy" else numbers[number]


def _ahead_text(row: RetentionRow, number: Metric) -> str:
    return {None: "", True: "yes", False: "no"}[row.is_ahead[number]]


def _in_order(answer: Retention) -> list[RetentionRow]:
    number = number_of(answer)
    sign = -1 if number == "accuracy" else 1
    return sorted(answer.rows, key=lambda row: (row.kept[number] is None, sign * (row.kept[number] or 0.0)))


def describe_left_out(answer: Retention) -> str:
    """The experts that are not compared; empty if all are."""
    if not answer.left_out:
        return ""
    return f"Left out, since their tokenizers differ: {listed(answer.left_out)}. Select only them to compare them."


def _row(answer: Retention, row: RetentionRow) -> dict[str, Any]:
    domains = [*answer.targets, answer.retain]
    titles = {domain: f"{domain} (kept)" if domain == answer.retain else domain for domain in domains}
    several = len(answer.targets) > 1
    return {
        "expert": row.expert,
        "method": method_label(row),
        "parameters": parameters_text(row.total_parameters),
        **{f"accuracy on {titles[domain]} (%)": in_percent(row.accuracy[domain]) for domain in domains},
        **({"mean accuracy on targets (%)": in_percent(row.learned["accuracy"])} if several else {}),
        **{f"perplexity on {titles[domain]}": row.perplexity[domain] for domain in domains},
        **({"mean perplexity on targets": row.learned["perplexity"]} if several else {}),
        "ahead": _ahead_text(row, number_of(answer)),
    }


def method_label(row: RetentionRow) -> str:
    """`MoDE, 2 parts`; `the seed (dense)`."""
    if row.is_seed:
        return f"the seed ({method_of(str(row.method)).title})"
    title = method_of(str(row.method)).title
    return f"{title}, {pluralize(row.num_parts, 'part')}" if row.num_parts > 1 else title


def describe_retention(answer: Retention, number: Metric) -> str:
    """The best experts by learning, by retention and in both, and where the other metric disagrees.

    Empty if nothing can be compared.
    """
    (other,) = set(_METRICS) - {number}
    rows = placed_experts(answer, number)
    if not rows:
        return ""
    leaders = _leaders(rows, number)
    learned, kept = ({row.row.expert: row for row in rows}[name] for name in leaders[:2])
    words = (
        f"By {number}. "
        f"Learned most: {learned.row.expert} ({metric_text(learned.learned, number)} on {_targets(answer.targets)}). "
        f"Kept most: {kept.row.expert} ({metric_text(kept.kept, number)} on {answer.retain}). "
        f"Ahead of {pluralize(len(rows), 'expert')}: {listed(leaders[2])}."
    )
    others = _leaders(also, other) if (also := placed_experts(answer, other)) else leaders
    if others == leaders:
        return words
    return (
        f"{words} By {other} the result differs: learned most {others[0]}, kept most {others[1]}, "
        f"ahead {listed(others[2])}."
    )


def _leaders(rows: Sequence[ExpertPosition], number: Metric) -> tuple[str, str, list[str]]:
    best = max if number == "accuracy" else min
    learned = best(rows, key=lambda row: row.learned)
    kept = best(rows, key=lambda row: row.kept)
    return learned.row.expert, kept.row.expert, [row.row.expert for row in rows if row.is_ahead]


def _targets(targets: Sequence[str]) -> str:
    return targets[0] if len(targets) == 1 else f"average over {listed(list(targets))}"


def metric_text(value: float, number: Metric) -> str:
    """`41.2 %`, or `perplexity 12.30`."""
    return percent(100 * value) if number == "accuracy" else f"perplexity {perplexity(value)}"


def describe_missing_evaluations(answer: Retention) -> Iterator[tuple[str, str]]:
    """What is missing, in a sentence each, and the command that makes it."""
    for gap in answer.missing:
        yield f"{listed(gap.experts)} on {listed(gap.domains)}: {gap.why}.", gap.command


def describe_measured_text(answer: Retention) -> str:
    """The text that the numbers were measured on."""
    return describe_measures(answer.measures)


def forgetting_rows(answer: Forgetting) -> list[dict[str, Any]]:
    """Each domain before and after, targets first."""
    return [
        {
            "domain": row.domain,
            "role": "target" if row.is_target else row.role,
            "tokens": row.num_tokens,
            "before": row.before,
            "after": row.after,
            "change (%)": row.change_percent,
        }
        for row in sorted(answer.domains, key=lambda row: not row.is_target)
    ]


def describe_forgetting(answer: Forgetting) -> Iterator[str]:
    """The mean change of the target and of every role that has a domain."""
    for name, mean in answer.averages.items():
        if mean.num_domains:
            others = pluralize(mean.num_domains, f"{name} domain")
            what = "On the target" if name == "target" else f"On average over {others}"
            yield f"{what}: {change(mean.change_percent)}."
