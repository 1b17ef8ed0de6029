"""Table 1: both targets at once, and what is retained; with it what the paper does not hold equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import Claim, Verdict
from workbench_studies.mode import arms, paper
from workbench_studies.mode.evidence import ModeEvidence, on
from workbench_studies.mode.names import BACKBONE, Arm
from workbench_studies.mode.orders import COMPARABLE, LEARNING_RATE, best_has_more, has_more, is_comparable

Column = Literal["first", "second", "retention", "average"]
_COLUMNS: tuple[Column, ...] = ("first", "second", "retention", "average")  # as the paper has them
_MORE: tuple[tuple[Column, paper.Row, paper.Row], ...] = (
    ("average", "composed", "full"),
    ("average", "composed", "lora"),
    ("average", "composed", "two"),
    ("average", "two", "one"),
    ("average", "one", "full"),
    ("average", "composed", "frozen"),
    ("first", "composed", "lora"),
    ("second", "composed", "lora"),
    ("first", "full", "lora"),
    ("second", "full", "lora"),
    ("retention", "composed", "full"),
    ("retention", "composed", "lora"),
    ("retention", "lora", "full"),
    ("retention", "one", "full"),
    ("retention", "composed", "one"),
    ("retention", "composed", "two"),
    ("retention", "composed", "frozen"),
    ("retention", "frozen", "full"),
    ("first", "composed", "full"),
)


def judge_multi_domain(evidence: ModeEvidence) -> list[Verdict]:
    """The orders of table 1, then what they turn on."""
    return [
        *(_has_more(evidence, *order) for order in _MORE),
        *_comparable(evidence),
        _frozen_as_good(evidence),
        *_with_equal_steps(evidence),
        *_at_the_best_rate(evidence),
    ]


def _has_more(evidence: ModeEvidence, column: Column, more: paper.Row, less: paper.Row) -> Verdict:
    rows = arms.table_1(evidence.subject.size)
    place = _COLUMNS.index(column)
    paper_values = f"{paper.TABLE_1[more][place]:.2f} > {paper.TABLE_1[less][place]:.2f}"
    claim = Claim(
        "Table 1",
        f"{rows[more]} is above {rows[less]} {_where(evidence, column)}",
        paper_values,
        id=f"{column}-{more}-above-{less}",
    )
    return has_more(evidence, claim, rows[more], rows[less], _texts(evidence, column))


def _where(evidence: ModeEvidence, column: Column) -> str:
    subject = evidence.subject
    return {
        "first": f"on the first target ({subject.targets[0]})",
        "second": f"on the second target ({subject.targets[1]})",
        "retention": f"in retention ({subject.retention})",
        "average": "on average",
    }[column]


def _texts(evidence: ModeEvidence, column: Column) -> Sequence[str]:
    subject = evidence.subject
    return {
        "first": subject.targets[:1],
        "second": subject.targets[1:],
        "retention": (subject.retention,),
        "average": subject.judged,
    }[column]


def _comparable(evidence: ModeEvidence) -> Iterator[Verdict]:
    """“Comparable target performances” to full fine-tuning (abstract, §4.2)."""
    rows = arms.table_1(evidence.subject.size)
    columns: tuple[Column, ...] = ("first", "second")
    for column in columns:
        ours, full = (paper.TABLE_1[row][_COLUMNS.index(column)] for row in ("composed", "full"))
        sentence = f"{rows['composed']} is comparable to {rows['full']} {_where(evidence, column)}"
        claim = Claim(
            "§4.2",
            f"{sentence} (at most {COMPARABLE:g} points less)",
            f"{ours:.2f} against {full:.2f}",
            id=f"{column}-comparable",
        )
        yield is_comparable(evidence, claim, rows["composed"], rows["full"], _texts(evidence, column))


def _frozen_as_good(evidence: ModeEvidence) -> Verdict:
    """What freezing costs: the paper's averages differ by 0.01."""
    rows = arms.table_1(evidence.subject.size)
    frozen, full = (paper.TABLE_1[row][3] for row in ("frozen", "full"))
    sentence = f"{rows['frozen']} is comparable to {rows['full']} on average (at most {COMPARABLE:g} points less)"
    claim = Claim("Table 1", sentence, f"{frozen:.2f} against {full:.2f}", id="frozen-comparable")
    return is_comparable(evidence, claim, rows["frozen"], rows["full"], evidence.subject.judged)


def _with_equal_steps(evidence: ModeEvidence) -> Iterator[Verdict]:
    """The composed model and its experts had three trainings; does it lead when the others have as many steps?"""
    composed = arms.table_1(evidence.subject.size)["composed"]
    for row, other in arms.longer(evidence.subject.size).items():
        printed = f"{paper.TABLE_1['composed'][3]:.2f} > {paper.TABLE_1[row][3]:.2f}, steps not stated"
        claim = Claim("§3.2, §4.1", f"{composed} is above {other} on average", printed, id=f"longer-{row}")
        yield has_more(evidence, claim, composed, other, evidence.subject.judged)


def _at_the_best_rate(evidence: ModeEvidence) -> Iterator[Verdict]:
    """The paper has one rate for all; a search only for LoRA's rank."""
    rates, rows = arms.by_rate(evidence.subject.size), arms.table_1(evidence.subject.size)
    for less in ("full", "lora"):
        sentence = f"{rows['one']} is above {rows[less]} on average, each at its best rate of {_listed(rates['one'])}"
        paper_values = f"{paper.TABLE_1['one'][3]:.2f} > {paper.TABLE_1[less][3]:.2f} at 0.001 for all"
        claim = Claim(
            "§4.1", sentence, paper_values, topics=(LEARNING_RATE,), model=str(rows["one"]), id=f"best-rate-{less}"
        )
        yield best_has_more(
            evidence, claim, rates["one"], rates[less], evidence.subject.judged, lambda rate: f"{rate:g}"
        )


def _listed(rates: Mapping[float, Arm]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


# tables -------------------------------------------------------------------------------------------


def by_method(evidence: ModeEvidence) -> list[Row]:
    """Table 1: accuracies with the paper's, perplexity and parameters beside them; the backbone first."""
    size = evidence.subject.size
    paper_values: list[tuple[Arm, paper.Row | None]] = [(BACKBONE, None)]
    paper_values += [(arm, row) for row, arm in arms.table_1(size).items()]
    return [_row(evidence, arm, row) for arm, row in [*paper_values, (arms.copied(size), None)]]


def by_domain(evidence: ModeEvidence) -> list[Row]:
    """The accuracy of table 1's models on each domain, training and novel."""
    models = [BACKBONE, *arms.table_1(evidence.subject.size).values()]
    return [
        {
            "domain": domain,
            "role": "novel" if domain in evidence.subject.novel else "training",
            **{str(arm): _value(evidence, arm, [domain]) for arm in models},
        }
        for domain in evidence.subject.everywhere
    ]


def _row(evidence: ModeEvidence, arm: Arm, row: paper.Row | None) -> Row:
    subject = evidence.subject
    printed = paper.TABLE_1[row] if row else None
    perplexity = evidence.resampled.average(arm, subject.judged)
    return {
        "model": str(arm),
        "parameters": _total(evidence, arm),
        **{on(domain): _value(evidence, arm, [domain]) for domain in subject.judged},
        **interval_columns(evidence.accuracy(arm, subject.judged), "average"),
        "perplexity": perplexity.value if perplexity else None,
        "paper: Math, Code, English": " / ".join(f"{one:.2f}" for one in printed[:3]) if printed else None,
        "paper: average": printed[3] if printed else None,
        "paper: parameters (B)": f"{paper.PARAMETERS[row]:.3f}" if row else None,
    }


def _total(evidence: ModeEvidence, arm: Arm) -> int | None:
    """The backbone's parameters and what was added to them."""
    of_backbone, added = evidence.num_parameters(BACKBONE), evidence.num_parameters(arm)
    if of_backbone is None or arm.method in ("backbone", "full"):
        return of_backbone
    return None if added is None else of_backbone + added


def _value(evidence: ModeEvidence, arm: Arm, domains: Sequence[str]) -> float | None:
    result = evidence.accuracy(arm, domains)
    return result.value if result else None


def by_knowledge(evidence: ModeEvidence) -> list[Row]:
    """Gains and losses against the backbone on its other training domains and on novel text."""
    subject = evidence.subject
    texts = {
        f"retention: {subject.retention}": [subject.retention],
        "its other domains": subject.others,
        "novel domains": subject.novel,
    }
    rows: list[Row] = []
    for arm in arms.table_1(subject.size).values():
        for name, domains in texts.items():
            if domains:
                result = interval_columns(evidence.lead(arm, BACKBONE, domains), "change")
                rows.append({"model": str(arm), "text": name, **result})
    return rows


def by_steps(evidence: ModeEvidence) -> list[Row]:
    """What is compared with the composed model, given as many steps as it and its experts had."""
    rows, size = arms.table_1(evidence.subject.size), evidence.subject.size
    compared = [*arms.longer(size).values(), rows["composed"]]
    return [_short_row(evidence, arm, {"model": str(arm), "steps in all": _steps(evidence, arm)}) for arm in compared]


def _steps(evidence: ModeEvidence, arm: Arm) -> int:
    trainings = arm.longer + (2 if arm.method in ("frozen", "composed") else 0)
    return evidence.subject.size.training.num_steps * trainings


def by_rate(evidence: ModeEvidence) -> list[Row]:
    """Methods without a first stage at several peak rates."""
    rows = arms.table_1(evidence.subject.size)
    return [
        _short_row(evidence, arm, {"model": str(rows[row]), "rate": f"{rate:g}"})
        for row, from_fields in arms.by_rate(evidence.subject.size).items()
        for rate, arm in from_fields.items()
    ]


def _short_row(evidence: ModeEvidence, arm: Arm, paper_values: Row) -> Row:
    subject = evidence.subject
    own = {on(domain): _value(evidence, arm, [domain]) for domain in subject.judged}
    return paper_values | own | interval_columns(evidence.accuracy(arm, subject.judged), "average")
