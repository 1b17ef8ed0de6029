"""The findings of a replication of MoDE, as JSON for its report, its page and other programs: its tables."""

from __future__ import annotations

from collections.abc import Sequence

from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.sizes import read_table
from workbench_studies.mode import arms
from workbench_studies.mode.measurements import ModeMeasurements
from workbench_studies.mode.names import BACKBONE, Arm

PAPER = read_table(__file__, "paper")
TABLE_3 = {(int(blocks), int(layers)): row for (blocks, _, layers), row in PAPER["table_3"].items()}
ALL = "all"
_ONE_EXPERT = 3 * 2  # layers of the expert of table 1's third row: what it has more than full fine-tuning is theirs


def share_of_backbone(num_layers: int) -> float:
    """What an expert of so many layers would add to the paper's backbone, as a share of its parameters."""
    full, one = (PAPER["parameters"][row] for row in ("full", "one"))
    return float(num_layers / _ONE_EXPERT * (one - full) / full)


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
    rows, own = arms.table_1(size), f"retention: {subject.retention}"
    texts = {own: [subject.retention], "its other domains": subject.others, "novel domains": subject.novel}
    models = {str(arm): arm for arm in (BACKBONE, *rows.values())}
    return {
        "1": [_method_row(measured, row, arm) for row, arm in (("", BACKBONE), *rows.items(), ("", arms.copied(size)))],
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
            for arm in (*arms.longer(size).values(), rows["composed"])
        ],
        "rates": [
            {"model": str(rows[row]), "rate": f"{rate:g}", **_averages(measured, arm)}
            for row, of_row in arms.by_rate(size).items()
            for rate, arm in of_row.items()
        ],
    }


def _by_amount(measured: ModeMeasurements) -> dict[str, list[Row]]:
    """Tables 2 and 3 and figures 3 and 5: by parameters and by training text."""
    size = measured.subject.budget
    by_rank, rows = arms.by_rank(size), arms.table_1(size)
    return {
        "2": [
            {
                "rank": lora.rank,
                "in FFNs": "no" if lora.targets == "attention" else "yes",
                "in embeddings": "yes" if lora.embeddings else "no",
                **_with_printed(measured, arm, PAPER["table_2"].get(str(name))),
            }
            for name, arm in [*by_rank.items(), *arms.in_more_layers(size).items()]
            if (lora := arm.lora)
        ],
        "3": [
            {"blocks": cell[0], "layers in each": cell[1], **_with_printed(measured, arm, TABLE_3.get(cell))}
            for cell, arm in arms.by_shape(size).items()
        ],
        "parameters": [
            {"method": method, "model": str(arm), **_with_parameters(measured, arm)}
            for method, of_method in (("LoRA", by_rank), ("MoDE", arms.by_layers(size)))
            for arm in of_method.values()
        ],
        "sequences": [
            {"method": {"lora": "LoRA", "mode": "MoDE"}[method], "sequences": text, **_on_second(measured, arm)}
            for method, of_method in arms.by_sequences(size).items()
            for text, arm in _by_text(of_method)
        ],
        "mixture": [
            {"model": str(rows[row]), "sequences of each": text, **_averages(measured, arm)}
            for row, of_row in arms.by_mixture(size).items()
            for text, arm in _by_text(of_row)
        ],
    }


# columns ------------------------------------------------------------------------------------------


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
