"""The findings of a replication of MoDE, as JSON for its report, its page and other programs: its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
        "tables": {
            "1": by_method(measured),
            "domains": _by_domain(measured),
            "knowledge": list(_by_knowledge(measured)),
            "steps": by_steps(measured),
            "rates": _by_rate(measured),
            "2": by_rank(measured),
            "3": _by_shape(measured),
            "parameters": _by_parameters(measured),
            "sequences": _by_sequences(measured),
            "mixture": _by_mixture(measured),
        },
    }


def on(domain: str) -> str:
    """The column of accuracies on a domain: no domain's name can be another column's."""
    return f"on {domain}"


def _percent(measured: ModeMeasurements, arm: Arm, domain: str) -> float | None:
    result = measured.accuracy(arm, [domain])
    return result.value if result else None


def _averages(measured: ModeMeasurements, arm: Arm) -> Row:
    """The columns of table 1: each domain, and their average."""
    judged = measured.subject.judged
    own = {on(domain): _percent(measured, arm, domain) for domain in judged}
    return own | interval_columns(measured.accuracy(arm, judged), "average")


def _on_second(measured: ModeMeasurements, arm: Arm) -> Row:
    """The columns of tables 2 and 3: the second target, and what is retained."""
    target, retained = measured.subject.judged[1:]
    own = interval_columns(measured.accuracy(arm, [target]), on(target))
    return own | {on(retained): _percent(measured, arm, retained)}


# table 1 ------------------------------------------------------------------------------------------


def by_method(measured: ModeMeasurements) -> list[Row]:
    """Table 1: accuracies with the paper's, perplexity and parameters; the backbone first."""
    size = measured.subject.budget
    rows = [("", BACKBONE), *arms.table_1(size).items(), ("", arms.copied(size))]
    return [_method_row(measured, arm, PAPER["table_1"].get(row), PAPER["parameters"].get(row)) for row, arm in rows]


def _method_row(measured: ModeMeasurements, arm: Arm, printed: Sequence[float] | None, parameters: float | None) -> Row:
    return {
        "model": str(arm),
        "parameters": _total(measured, arm),
        **_averages(measured, arm),
        "perplexity": measured.value(arm, measured.subject.judged),
        "paper: Math, Code, English": " / ".join(f"{one:.2f}" for one in printed[:3]) if printed else None,
        "paper: average": printed[3] if printed else None,
        "paper: parameters (B)": f"{parameters:.3f}" if parameters else None,
    }


def _total(measured: ModeMeasurements, arm: Arm) -> int | None:
    """The backbone's parameters and what was added to them."""
    of_backbone, added = measured.parameters_of(BACKBONE), measured.parameters_of(arm)
    if of_backbone is None or arm.method in ("backbone", "full"):
        return of_backbone
    return None if added is None else of_backbone + added


def _by_domain(measured: ModeMeasurements) -> list[Row]:
    """The accuracy of table 1's models on each domain, training and novel."""
    models = [BACKBONE, *arms.table_1(measured.subject.budget).values()]
    return [
        {
            "domain": domain,
            "role": measured.subject.role_of(domain),
            **{str(arm): _percent(measured, arm, domain) for arm in models},
        }
        for domain in measured.subject.everywhere
    ]


def _by_knowledge(measured: ModeMeasurements) -> Iterator[Row]:
    """Gains and losses against the backbone on its other training domains and on novel text."""
    subject = measured.subject
    texts = {
        f"retention: {subject.retention}": [subject.retention],
        "its other domains": subject.others,
        "novel domains": subject.novel,
    }
    for arm in arms.table_1(subject.budget).values():
        for name, domains in texts.items():
            if domains:
                change = measured.lead(arm, BACKBONE, domains)
                yield {"model": str(arm), "text": name, **interval_columns(change, "change")}


def by_steps(measured: ModeMeasurements) -> list[Row]:
    """What is compared with the composed model, given as many steps as it and its experts had."""
    size = measured.subject.budget
    compared = [*arms.longer(size).values(), arms.table_1(size)["composed"]]
    return [
        {
            "model": str(arm),
            "steps in all": size.training.num_steps * (arm.longer + (2 if arm.is_composed else 0)),
            **_averages(measured, arm),
        }
        for arm in compared
    ]


def _by_rate(measured: ModeMeasurements) -> list[Row]:
    """Methods without a first stage at several peak rates."""
    rows = arms.table_1(measured.subject.budget)
    return [
        {"model": str(rows[row]), "rate": f"{rate:g}", **_averages(measured, arm)}
        for row, of_row in arms.by_rate(measured.subject.budget).items()
        for rate, arm in of_row.items()
    ]


# tables 2 and 3, figures 3 and 5 ------------------------------------------------------------------


def by_rank(measured: ModeMeasurements) -> list[Row]:
    """Table 2, with the paper's rows of the same rank."""
    size = measured.subject.budget
    return [
        {
            "rank": lora.rank,
            "in FFNs": "no" if lora.targets == "attention" else "yes",
            "in embeddings": "yes" if lora.embeddings else "no",
            **_beside(measured, arm, PAPER["table_2"].get(str(name))),
        }
        for name, arm in [*arms.by_rank(size).items(), *arms.in_more_layers(size).items()]
        if (lora := arm.lora)
    ]


def _by_shape(measured: ModeMeasurements) -> list[Row]:
    """Table 3."""
    return [
        {"blocks": cell[0], "layers in each": cell[1], **_beside(measured, arm, TABLE_3.get(cell))}
        for cell, arm in arms.by_shape(measured.subject.budget).items()
    ]


def _by_parameters(measured: ModeMeasurements) -> list[Row]:
    """Figure 3, left: accuracy on the second target by what was added."""
    size = measured.subject.budget
    return [
        {"method": method, "model": str(arm), **_columns(measured, arm)}
        for method, of_method in (("LoRA", arms.by_rank(size)), ("MoDE", arms.by_layers(size)))
        for arm in of_method.values()
    ]


def _beside(measured: ModeMeasurements, arm: Arm, printed: Sequence[float] | None) -> Row:
    """Our numbers and the paper's; a row that the paper has not keeps its columns, which are those of the first row."""
    code, english = printed or (None, None)
    return {**_columns(measured, arm), "paper: Code": code, "paper: English": english}


def _columns(measured: ModeMeasurements, arm: Arm) -> Row:
    return {"parameters added": measured.parameters_of(arm), **_on_second(measured, arm)}


def _by_sequences(measured: ModeMeasurements) -> list[Row]:
    """Figure 3, right."""
    return [
        {
            "method": {"lora": "LoRA", "mode": "MoDE"}[method],
            "sequences": _amount(amount),
            **_on_second(measured, arm),
        }
        for method, of_method in arms.by_sequences(measured.subject.budget).items()
        for amount, arm in of_method.items()
    ]


def _by_mixture(measured: ModeMeasurements) -> list[Row]:
    """Figure 5."""
    rows = arms.table_1(measured.subject.budget)
    return [
        {"model": str(rows[row]), "sequences of each": _amount(amount), **_averages(measured, arm)}
        for row, of_row in arms.by_mixture(measured.subject.budget).items()
        for amount, arm in of_row.items()
    ]


def _amount(amount: int | None) -> str:
    return ALL if amount is None else f"{amount:,}"
