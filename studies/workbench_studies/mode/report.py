"""The sections of MoDE's report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench_studies.core.findings import Findings
from workbench_studies.core.report import (
    Section,
    amount,
    circumstances,
    failed,
    headline,
    in_short,
    intervals,
    the_claims,
    training_words,
)
from workbench_studies.core.study import read_texts
from workbench_studies.mode import paper
from workbench_studies.mode.names import Arm
from workbench_studies.mode.orders import COMPARABLE, EXPERT_SIZE, LEARNING_RATE, LORA_RANK

_COMPOSED, _FULL = str(Arm("composed")), str(Arm("full"))

TEXTS = read_texts(__file__)


def sections(findings: Findings) -> list[Section]:
    """All sections of the report, in order."""
    return [
        in_short(findings, headline(findings), best_words(findings)),
        the_claims(findings, _MARKS),
        *_multi_domain(findings),
        *_shapes(findings),
        *_amounts(findings),
        Section("Figure 4: backbone and experts on devices of their own", (TEXTS["sharded"],)),
        failed(findings, reasons),
        Section("Contradictions within the paper", tuple(findings["disagreements"])),
        intervals(findings, _HOW, *_seeds(findings)),
        circumstances(findings, *_trainings(findings)),
    ]


_MARKS = (
    "Accuracy is that of the next token, in %: how often the most probable token is the one that comes. An average is "
    "that of both targets and of what is retained, each with the same weight, as in the paper. “Comparable” is at most "
    f"{COMPARABLE:g} percentage points less, “as much” within {COMPARABLE:g}."
)
_HOW = "Of accuracies as of perplexities: right tokens over all tokens of the documents that were drawn."


def _seeds(findings: Findings) -> Iterator[str]:
    """What differs between seeds, and which tables have fewer; older findings have neither."""
    if findings["budget"].get("shared_backbone"):
        yield TEXTS["one_backbone"]
    if fewer := findings["budget"].get("ablation_seeds"):
        yield f"Table 1 and equal steps have all seeds; rates, tables 2 and 3 and figures at most the first {fewer}."


def best_words(findings: Findings) -> str:
    """Which row of table 1 is best on average, and what its rivals have with as many steps in all."""
    named = [row["model"] for row in findings["tables"]["1"]]
    longer = [row for row in findings["tables"]["steps"] if row["average"] is not None and row["model"] not in named]
    listed = ", ".join(f"{row['model']} {row['average']:.2f} %" for row in longer)
    sentence = leader_words(findings)
    return f"{sentence} With as many steps as the composed model had in all: {listed}." if listed else sentence


def leader_words(findings: Findings) -> str:
    """Which row of table 1 is best on average, beside full fine-tuning and the composed model."""
    rows = [row for row in findings["tables"]["1"] if row["average"] is not None]
    of = {row["model"]: row["average"] for row in rows}
    if not {_COMPOSED, _FULL} <= of.keys():
        return "Which method is best is not known yet: their scores are missing."
    best = max(of, key=lambda name: of[name])
    sentence = f"Best on average over both targets and what is retained: {best}, {of[best]:.2f} %."
    others = [name for name in (_COMPOSED, _FULL) if name != best]
    return " ".join([sentence, *(f"{name[0].upper()}{name[1:]} has {of[name]:.2f} %." for name in others)])


# tables and charts --------------------------------------------------------------------------------


def _multi_domain(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    yield Section(_TABLE_1, (_texts(findings), TEXTS["fresh"]), tables["1"], "methods")
    yield Section("Changes on other domains of the backbone", (TEXTS["known"],), tables["knowledge"])
    yield Section("Each domain", ("Accuracy of the next token, in %.",), tables.get("domains", []))
    yield Section("As many steps for all", (TEXTS["steps"],), tables["steps"])
    yield Section("The learning rate", (TEXTS["rates"],), tables["rates"])


_TABLE_1 = "Table 1: two targets at once, and what is retained"


def _texts(findings: Findings) -> str:
    first, second = findings["targets"]
    return (
        f"Here {first} stands for Math, {second} for Code and {findings['retention']} for English. The backbone was "
        f"trained on {findings['retention']} and the other training domains, and on neither target."
    )


def _shapes(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    second = findings["targets"][1]
    times = _PAPERS_WIDTH / findings["budget"]["shape"]["width"]
    words = (
        f"Trained on {second} alone. {TEXTS['ranks']} Its model is some {times:.0f} times as wide: our ranks stand in."
    )
    yield Section("Table 2: ranks of LoRA", (words,), tables["2"])
    yield Section("Table 3: blocks, and layers in each", (f"Trained on {second} alone.",), tables["3"])
    yield Section("Figure 3, left: more parameters", (_PARAMETERS,), tables["parameters"], "parameters")


_PAPERS_WIDTH = 2048  # about: 1.58 billion parameters in 18 layers
_PARAMETERS = "LoRA by its rank, MoDE by the layers of the expert in each block; the axis is what was added."


def _amounts(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    yield Section(
        "Figure 3, right: more text",
        (f"Of {findings['targets'][1]}. {TEXTS['amounts']}",),
        tables["sequences"],
        "sequences",
    )
    yield Section("Figure 5: more mixed text", (TEXTS["mixed"], TEXTS["amounts"]), tables["mixture"], "mixture")


# what did not come out, and where it ran ------------------------------------------------------------


def reasons(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    """Possible reasons why a claim was not reproduced."""
    budget = findings["budget"]
    topics = claim.get("topics", ())  # reports of older versions have none
    if LORA_RANK in topics:
        rank, width = budget["lora"]["rank"], budget["shape"]["width"]
        if width < _PAPERS_WIDTH / 4:
            guess = f"Guess: the rank. Rank {rank} of a width of {width} is no small change"
            yield f"{guess}; the paper's 16 is of some two thousand."
    if EXPERT_SIZE in topics:
        yield from _largest_expert(findings)
    if LEARNING_RATE in topics:
        yield from _rate_at_the_end(findings, claim["model"])


def _largest_expert(findings: Findings) -> Iterator[str]:
    """How much more the largest expert is of its backbone than the paper's of its own."""
    backbone, rows = findings["tables"]["1"][0]["parameters"], findings["tables"]["3"]
    largest = max(rows, key=lambda row: row["blocks"] * row["layers in each"])
    shape = (largest["blocks"], largest["layers in each"])
    if not backbone or not largest["parameters added"]:
        return
    share, theirs = largest["parameters added"] / backbone, paper.share_of_backbone(*shape)
    if share > 2 * theirs:
        sentence = f"Guess: An expert of {shape[0]} × {shape[1]} layers adds {100 * share:.0f} % of the backbone's"
        yield f"{sentence} parameters here, and {100 * theirs:.0f} % of the paper's."


def _rate_at_the_end(findings: Findings, model: str) -> Iterator[str]:
    """Whether a model is best at the lowest or highest rate that was tried."""
    rows = [row for row in findings["tables"]["rates"] if row["model"] == model]
    best = max(rows, key=lambda row: row["average"] or 0.0)
    for end, row in (("lowest", rows[0]), ("highest", rows[-1])):
        if row is best:
            yield f"On all documents {row['model']} is best at {row['rate']}, the {end} rate that was tried."


def _trainings(findings: Findings) -> Iterator[str]:
    budget = findings["budget"]
    mode, lora = budget["mode"], budget["lora"]
    seeding, training = (training_words(budget[name]) for name in ("seeding", "training"))
    yield f"Backbone: {seeding}; {amount(budget['seeding_tokens'])} tokens."
    yield (
        f"Every other training (sequences of each target; of one target twice as many): {training}; "
        f"{amount(budget['training_tokens'])} tokens."
    )
    yield (
        f"Experts of MoDE: {mode['num_blocks']} blocks of {mode['expert_layers']} layers, start {mode['init']}, gates "
        f"{mode['start']}. LoRA: rank {lora['rank']}, alpha {lora['alpha']:g}, {lora['targets']}."
    )
