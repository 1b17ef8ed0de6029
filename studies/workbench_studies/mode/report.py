"""What only code can say in MoDE's report; its paragraphs and tables are declared in `report.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench_studies.core.findings import Findings
from workbench_studies.core.report import Report, amount
from workbench_studies.core.spec import read_table
from workbench_studies.mode.names import Arm
from workbench_studies.mode.tables import share_of_backbone

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
    share, theirs = largest["parameters added"] / backbone, share_of_backbone(blocks * layers)
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
