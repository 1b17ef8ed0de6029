"""What experts learned and kept, as rows for a table and in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ui.present.text.formatting import listed, millions, pluralize
from ui.present.text.measures import in_percent, measure_words

Findings = Mapping[str, Any]
_NUMBERS = ("accuracy", "perplexity")
HOW_TO_READ = (
    "An expert is ahead when no other has both learned and kept as much, and one of the two better. Accuracy is the "
    "share of tokens that were the most probable one; a mean of perplexities over targets is the geometric one."
)


def number_of(found: Findings) -> str:
    """What to compare by: accuracy where every comparable expert has it, else perplexity."""
    known = {number: len(placed(found, number)) for number in _NUMBERS}
    return "accuracy" if known["accuracy"] and known["accuracy"] == known["perplexity"] else "perplexity"


def placed(found: Findings, number: str) -> list[Mapping[str, Any]]:
    """The experts of which it is known both what they learned and what they kept."""
    return [row for row in found["rows"] if row["is_ahead"][number] is not None]


def retention_rows(found: Findings) -> list[dict[str, Any]]:
    """Every expert with every number, those first that kept most, and last those of which it is not known."""
    return [_row(found, row) for row in _in_order(found)]


def verdict_title(found: Findings) -> str:
    """Which number tells what was learned and kept, and of which domains."""
    learned, number = listed(list(found["targets"])), number_of(found)
    return f"{number.capitalize()} on what was to be learned ({learned}) and on what was to be kept ({found['retain']})"


def verdict_rows(found: Findings) -> list[dict[str, Any]]:
    """Every expert with what it learned on average and what it kept, in the same order: few columns for any targets."""
    number = number_of(found)
    unit = "%" if number == "accuracy" else number
    return [
        {
            "expert": row["expert"],
            "method": method_words(row),
            "parameters": millions(row["num_parameters"]),
            f"learned ({unit})": _in_unit(row["learned"], number),
            f"kept ({unit})": _in_unit(row["kept"], number),
            "ahead": _ahead_words(row, number),
        }
        for row in _in_order(found)
    ]


def domain_rows(found: Findings) -> list[dict[str, Any]]:
    """The same experts on one domain after another, a row for each; the mean of several targets behind these."""
    rows = _in_order(found)
    return [
        {
            "domain": domain,
            "expert": row["expert"],
            "accuracy (%)": in_percent(numbers["accuracy"]),
            "perplexity": numbers["perplexity"],
        }
        for on_one in zip(*(_by_domain(found, row) for row in rows), strict=True)
        for row, (domain, numbers) in zip(rows, on_one, strict=True)
    ]


def _by_domain(found: Findings, row: Mapping[str, Any]) -> list[tuple[str, Mapping[str, float | None]]]:
    targets = [(domain, {name: row[name][domain] for name in _NUMBERS}) for domain in found["targets"]]
    means = [("mean of targets", row["learned"])] if len(targets) > 1 else []
    return [*targets, *means, (f"{found['retain']} (kept)", row["kept"])]


def _in_unit(numbers: Mapping[str, Any], number: str) -> float | None:
    """A share in percent, a perplexity as it is."""
    return in_percent(numbers[number]) if number == "accuracy" else numbers[number]


def _ahead_words(row: Mapping[str, Any], number: str) -> str:
    return {None: "", True: "yes", False: "no"}[row["is_ahead"][number]]


def _in_order(found: Findings) -> list[Mapping[str, Any]]:
    number = number_of(found)
    sign = -1 if number == "accuracy" else 1
    return sorted(found["rows"], key=lambda row: (row["kept"][number] is None, sign * (row["kept"][number] or 0.0)))


def left_out_words(found: Findings) -> str:
    """Who could not be compared; empty where everybody is."""
    if not found["left_out"]:
        return ""
    return f"Left out, since their tokenizer is another: {listed(found['left_out'])}. Name them to compare them alone."


def _row(found: Findings, row: Mapping[str, Any]) -> dict[str, Any]:
    domains = [*found["targets"], found["retain"]]
    told = {domain: f"{domain} (kept)" if domain == found["retain"] else domain for domain in domains}
    several = len(found["targets"]) > 1
    return {
        "expert": row["expert"],
        "method": method_words(row),
        "parameters": millions(row["num_parameters"]),
        **{f"accuracy on {told[domain]} (%)": in_percent(row["accuracy"][domain]) for domain in domains},
        **({"mean accuracy on targets (%)": in_percent(row["learned"]["accuracy"])} if several else {}),
        **{f"perplexity on {told[domain]}": row["perplexity"][domain] for domain in domains},
        **({"mean perplexity on targets": row["learned"]["perplexity"]} if several else {}),
        "ahead": _ahead_words(row, number_of(found)),
    }


def method_words(row: Mapping[str, Any]) -> str:
    """`mode, 2 parts`; `the seed (dense)`."""
    if row["is_seed"]:
        return f"the seed ({row['method']})"
    return f"{row['method']}, {pluralize(row['num_parts'], 'part')}" if row["num_parts"] > 1 else str(row["method"])


def retention_words(found: Findings, number: str) -> str:
    """Who learned most, who kept most, who is behind nobody, and where the other number says otherwise.

    Empty where nothing can be compared.
    """
    (other,) = set(_NUMBERS) - {number}
    rows = placed(found, number)
    if not rows:
        return ""
    leaders = _leaders(rows, number)
    learned, kept = ({row["expert"]: row for row in rows}[name] for name in leaders[:2])
    words = (
        f"By {number}. "
        f"Learned most: {learned['expert']} ({told(learned['learned'], number)} on {_targets(found['targets'])}). "
        f"Kept most: {kept['expert']} ({told(kept['kept'], number)} on {found['retain']}). "
        f"Ahead of {pluralize(len(rows), 'expert')}: {listed(leaders[2])}."
    )
    others = _leaders(also, other) if (also := placed(found, other)) else leaders
    if others == leaders:
        return words
    return (
        f"{words} By {other} it is otherwise: learned most {others[0]}, kept most {others[1]}, "
        f"ahead {listed(others[2])}."
    )


def _leaders(rows: Sequence[Mapping[str, Any]], number: str) -> tuple[str, str, list[str]]:
    """By this number who learned most, who kept most, and who is ahead."""
    best = max if number == "accuracy" else min
    learned = best(rows, key=lambda row: row["learned"][number])
    kept = best(rows, key=lambda row: row["kept"][number])
    return learned["expert"], kept["expert"], [row["expert"] for row in rows if row["is_ahead"][number]]


def _targets(targets: Sequence[str]) -> str:
    return targets[0] if len(targets) == 1 else f"average over {listed(list(targets))}"


def told(numbers: Mapping[str, Any], number: str) -> str:
    """`41.2 %`, or `perplexity 12.30`."""
    value = numbers[number]
    return f"{100 * value:.1f} %" if number == "accuracy" else f"perplexity {value:,.2f}"


def missing_words(found: Findings) -> Iterator[tuple[str, str]]:
    """What is missing, in a sentence each, and the command that makes it."""
    for gap in found["missing"]:
        yield f"{listed(gap['experts'])} on {listed(gap['domains'])}: {gap['why']}.", gap["command"]


def text_words(found: Findings) -> str:
    """Of which text the numbers are."""
    return measure_words(found["measures"])
