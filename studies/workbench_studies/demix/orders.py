"""Tables 3 and 5: ways to train and to mix, averaged over domains; and the λ of the updating prior."""

from __future__ import annotations

from collections.abc import Mapping

from engine.statistics.bootstrap import Change
from workbench_studies.core.findings import interval_columns
from workbench_studies.core.shapes import holds_on_most
from workbench_studies.core.study import Options
from workbench_studies.core.verdicts import Claim, Verdict, untestable
from workbench_studies.demix import paper
from workbench_studies.demix.evidence import DemixCase, DemixEvidence
from workbench_studies.demix.names import (
    CALIBRATED,
    CODE,
    GRID,
    PAPER,
    READ_MODES,
    Reading,
    Variant,
    system,
)

WORDS: Mapping[Variant, str] = {
    "dense": "Dense",
    "dense-balanced": "Dense (balanced)",
    "domain-token": "+Domain-token",
    "naive": "DEMix (naive)",
    "average": "DEMix (average)",
    "uniform": "DEMix (uniform)",
    "updating": "DEMix (updating)",
    "cached": "DEMix (cached)",
}
FULL_DATA = "full data"  # topic: a model whose feed-forward networks see all text


def holds_for_lambda(case: DemixCase, claim: Claim, options: Options) -> Verdict:
    """What the paper says of λ in most settings: domains, training and novel, are the settings and the sample."""
    chosen = system("updating", GRID[options["chosen"]])
    others = [system("updating", reading) for value, reading in GRID.items() if value != options["chosen"]]
    resampled, domains = case.evidence.resampled, case.texts("everywhere")
    every = [[resampled.changes([Change(chosen, other, domain)]) for other in others] for domain in domains]
    known = [[one for one in row if one is not None] for row in every]
    if not known or any(len(row) < len(others) for row in known):
        return untestable(claim)
    return holds_on_most(claim, known, options["border"])


def by_lambda(evidence: DemixEvidence) -> list[dict[str, object]]:
    """DEMix (updating) under every λ of the paper's grid, by the paper's reading: averages over domains."""
    rows: list[dict[str, object]] = []
    for value, reading in GRID.items():
        row: dict[str, object] = {"λ": value, "share of the newest block": reading.newest_weight}
        for text, domains in (("training", evidence.subject.domains), ("novel", evidence.subject.novel)):
            average = evidence.resampled.average(system("updating", reading), domains)
            row |= interval_columns(average, text, f"{text}, ")
        rows.append(row)
    return rows


def averages(evidence: DemixEvidence, table: int) -> list[dict[str, object]]:
    """The rows of table 3 or 5: the paper's averages by model size, and ours with its interval.

    The paper's rows have its reading of the posterior. What a reading touches follows under that of the released code,
    and calibrated, which is ours: the paper has no numbers for these.
    """
    numbers = paper.TABLE_3 if table == 3 else paper.TABLE_5
    rows = [_average(evidence, table, mode, PAPER, printed) for mode, printed in numbers.items()]
    read = [mode for mode in numbers if mode in READ_MODES]
    return [*rows, *(_average(evidence, table, mode, reading) for reading in (CODE, CALIBRATED) for mode in read)]


def _average(
    evidence: DemixEvidence, table: int, mode: Variant, reading: Reading, printed: paper.Row | None = None
) -> dict[str, object]:
    domains = evidence.subject.domains if table == 3 else evidence.subject.novel
    results = evidence.resampled.average(system(mode, reading), domains)
    return {
        "system": WORDS[mode],
        "reading": str(reading) if mode in READ_MODES else "",
        **dict(zip(paper.SIZES, printed or [None] * len(paper.SIZES), strict=True)),
        **({"ours": results.value, "low": results.low, "high": results.high} if results else {}),
    }
