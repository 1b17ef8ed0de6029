"""The tables of MoDE's findings, and what only code can say in its report; its paragraphs are in `report.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench_studies.core.averages import Row, interval_columns
from workbench_studies.core.report import Report, amount
from workbench_studies.core.spec import read_table
from workbench_studies.core.verdicts import Findings
from workbench_studies.mode.arms import BACKBONE, PAPER, TABLE_3, Arm, Arms
from workbench_studies.mode.claims import ModeMeasurements

ALL = "all"
_ONE_EXPERT = 3 * 2  # layers of the expert of table 1's third row: what it has more than full fine-tuning is theirs


def findings_of(measured: ModeMeasurements) -> Row:
    """What only this paper's findings have."""
    return {
        "targets": list(measured.subject.targets),
        "retention": measured.subject.retention,
        "disagreements": PAPER["disagreements"],
        "tables": _by_arm(measured) | _by_amount(measured),
    }


def _by_arm(measured: ModeMeasurements) -> dict[str, list[Row]]:
    """Table 1 with the backbone first, its models on other text, with as many steps for all, and at other rates."""
    subject, size = measured.subject, measured.subject.budget
    arms = Arms(size)
    rows, own = arms.table_1, f"retention: {subject.retention}"
    texts = {own: [subject.retention], "its other domains": subject.others, "novel domains": subject.novel}
    models = {str(arm): arm for arm in (BACKBONE, *rows.values())}
    return {
        "1": [_method_row(measured, row, arm) for row, arm in (("", BACKBONE), *rows.items(), ("", arms.copied))],
        "domains": measured.by_domain(subject.everywhere, models, with_role=True),
        "knowledge": [
            {"model": str(arm), "text": name, **interval_columns(measured.difference(arm, BACKBONE, domains), "change")}
            for arm in rows.values()
            for name, domains in texts.items()
            if domains
        ],
        "steps": [
            {
                "model": str(arm),
                "steps in all": size.training.max_steps * (arm.longer + (2 if arm.is_composed else 0)),
                **_averages(measured, arm),
            }
            for arm in (*arms.longer.values(), rows["composed"])
        ],
        "rates": [
            {"model": str(rows[row]), "rate": f"{rate:g}", **_averages(measured, arm)}
            for row, of_row in arms.by_rate.items()
            for rate, arm in of_row.items()
        ],
    }


def _by_amount(measured: ModeMeasurements) -> dict[str, list[Row]]:
    """Tables 2 and 3 and figures 3 and 5: by parameters and by training text."""
    arms = Arms(measured.subject.budget)
    by_rank, rows = arms.by_rank, arms.table_1
    return {
        "2": [
            {
                "rank": lora.rank,
                "in FFNs": "no" if lora.targets == "attention" else "yes",
                "in embeddings": "yes" if lora.embeddings else "no",
                **_with_printed(measured, arm, PAPER["table_2"].get(str(name))),
            }
            for name, arm in [*by_rank.items(), *arms.in_more_layers.items()]
            if (lora := arm.lora)
        ],
        "3": [
            {"blocks": cell[0], "layers in each": cell[1], **_with_printed(measured, arm, TABLE_3.get(cell))}
            for cell, arm in arms.by_shape.items()
        ],
        "parameters": [
            {"method": method, "model": str(arm), **_with_parameters(measured, arm)}
            for method, of_method in (("LoRA", by_rank), ("MoDE", arms.by_layers))
            for arm in of_method.values()
        ],
        "sequences": [
            {"method": {"lora": "LoRA", "mode": "MoDE"}[method], "sequences": text, **_on_second(measured, arm)}
            for method, of_method in arms.by_sequences.items()
            for text, arm in _by_text(of_method)
        ],
        "mixture": [
            {"model": str(rows[row]), "sequences of each": text, **_averages(measured, arm)}
            for row, of_row in arms.by_mixture.items()
            for text, arm in _by_text(of_row)
        ],
    }


def on(domain: str) -> str:
    """The column of accuracies on a domain: no domain's name can be another column's."""
    return f"on {domain}"


def _averages(measured: ModeMeasurements, arm: Arm) -> Row:
    """The columns of table 1: each domain, and their average."""
    judged = measured.subject.judged
    own = {on(domain): measured.value_of(arm, [domain]) for domain in judged}
    return own | interval_columns(measured.average(arm, judged), "average")


def _on_second(measured: ModeMeasurements, arm: Arm) -> Row:
    """The columns of tables 2 and 3: the second target, and what is retained."""
    target, retained = measured.subject.judged[1:]
    own = interval_columns(measured.average(arm, [target]), on(target))
    return own | {on(retained): measured.value_of(arm, [retained])}


def _with_parameters(measured: ModeMeasurements, arm: Arm) -> Row:
    return {"parameters added": measured.parameters_of(arm), **_on_second(measured, arm)}


def _with_printed(measured: ModeMeasurements, arm: Arm, printed: Sequence[float] | None) -> Row:
    """Our numbers and the paper's; a row that the paper has not keeps its columns, which are those of the first row."""
    code, english = printed or (None, None)
    return {**_with_parameters(measured, arm), "paper: Code": code, "paper: English": english}


def _method_row(measured: ModeMeasurements, row: str, arm: Arm) -> Row:
    printed, parameters = PAPER["table_1"].get(row), PAPER["parameters"].get(row)
    of_backbone, added = measured.parameters_of(BACKBONE), measured.parameters_of(arm)
    total = None if added is None or of_backbone is None else of_backbone + added
    return {
        "model": str(arm),
        "parameters": of_backbone if arm.method in ("backbone", "full") else total,
        **_averages(measured, arm),
        "perplexity": measured.value(arm, measured.subject.judged),
        "paper: Math, Code, English": " / ".join(f"{one:.2f}" for one in printed[:3]) if printed else None,
        "paper: average": printed[3] if printed else None,
        "paper: parameters (B)": f"{parameters:.3f}" if parameters else None,
    }


def _by_text(by_sequences: dict[int | None, Arm]) -> list[tuple[str, Arm]]:
    return [(ALL if number is None else f"{number:,}", arm) for number, arm in by_sequences.items()]


_COMPOSED, _FULL = str(Arm("composed")), str(Arm("full"))
_PAPERS_WIDTH = 2048  # about: 1.58 billion parameters in 18 layers


def describe_best(findings: Findings) -> str:
    """Which row of table 1 is best on average, and what its rivals have with as many steps in all."""
    named = [row["model"] for row in findings["tables"]["1"]]
    longer = [row for row in findings["tables"]["steps"] if row["average"] is not None and row["model"] not in named]
    listed = ", ".join(f"{row['model']} {row['average']:.2f} %" for row in longer)
    sentence = describe_leader(findings)
    return f"{sentence} With as many steps as the composed model had in all: {listed}." if listed else sentence


def describe_leader(findings: Findings) -> str:
    """Which row of table 1 is best on average, with full fine-tuning and the composed model."""
    of = {row["model"]: row["average"] for row in findings["tables"]["1"] if row["average"] is not None}
    if not {_COMPOSED, _FULL} <= of.keys():
        return "Which method is best is not known yet: their scores are missing."
    best = max(of, key=lambda name: of[name])
    sentence = f"Best on average over both targets and what is retained: {best}, {of[best]:.2f} %."
    others = [name for name in (_COMPOSED, _FULL) if name != best]
    return " ".join([sentence, *(f"{name[0].upper()}{name[1:]} has {of[name]:.2f} %." for name in others)])


def reasons(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    """Possible reasons why a claim was not reproduced."""
    budget = findings["budget"]
    topics = claim.get("topics", ())  # reports of older versions have none
    rank, width = budget["lora"]["rank"], budget["shape"]["width"]
    if "rank of LoRA" in topics and width < _PAPERS_WIDTH / 4:
        guess = f"Guess: the rank. Rank {rank} of a width of {width} is no small change"
        yield f"{guess}; the paper's 16 is of some two thousand."
    if "size of the expert" in topics:
        yield from _largest_expert(findings)
    if "learning rate" in topics:
        yield from _rate_at_the_end(findings, claim["model"])


def _largest_expert(findings: Findings) -> Iterator[str]:
    """How much more the largest expert is of its backbone than the paper's of its own."""
    backbone, rows = findings["tables"]["1"][0]["parameters"], findings["tables"]["3"]
    largest = max(rows, key=lambda row: row["blocks"] * row["layers in each"])
    if not backbone or not largest["parameters added"]:
        return
    blocks, layers = largest["blocks"], largest["layers in each"]
    full, with_expert = (PAPER["parameters"][row] for row in ("full", "one"))
    theirs = blocks * layers / _ONE_EXPERT * (with_expert - full) / full
    share = largest["parameters added"] / backbone
    if share > 2 * theirs:
        sentence = f"Guess: An expert of {blocks} × {layers} layers adds {100 * share:.0f} % of the backbone's"
        yield f"{sentence} parameters here, and {100 * theirs:.0f} % of the paper's."


def _rate_at_the_end(findings: Findings, model: str) -> Iterator[str]:
    """Whether a model is best at the lowest or highest rate that was tried."""
    rows = [row for row in findings["tables"]["rates"] if row["model"] == model]
    best = max(rows, key=lambda row: row["average"] or 0.0)
    for end, row in (("lowest", rows[0]), ("highest", rows[-1])):
        if row is best:
            yield f"On all documents {row['model']} is best at {row['rate']}, the {end} rate that was tried."


REPORT = Report(
    read_table(__file__, "report"),
    reasons,
    {
        "best": describe_best,
        "times": lambda findings: f"{_PAPERS_WIDTH / findings['budget']['shape']['width']:.0f}",
        "seeding_tokens": lambda findings: amount(findings["budget"]["seeding_tokens"]),
        "training_tokens": lambda findings: amount(findings["budget"]["training_tokens"]),
    },
)
