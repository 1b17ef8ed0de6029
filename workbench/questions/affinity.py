"""Affinity of experts and domains (DEMix §4.4, figure 2): specialization ratios and bigram overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.errors import EngineError
from engine.text.split_names import HeldOutSplit
from workbench.analysis.perplexity_tables import perplexity_table
from workbench.answers.base import Answer
from workbench.answers.cards import ReportCard
from workbench.questions.question import Question, Split
from workbench.registry.reports import list_reports
from workbench.schema.tables import Domain, Expert
from workbench.store.storage import Storage

Overlaps = Mapping[tuple[str, str], float]  # of two domains by name


class AffinityCell(Answer):
    """An expert on a domain: its ratio to the domain's own expert, and the overlap of the domain with its own."""

    expert: str
    domain: str
    home: str = Field(description="The expert's own domain; empty if trained on several.")
    ratio: float
    overlap: float | None


class Correlation(Answer):
    """Pearson's r over cells, its t statistic, and the two-sided p of no correlation."""

    r: float
    t: float
    p: float
    num_cells: int


class Affinity(Answer):
    """Specialization ratios, the overlap of domains, and their correlation."""

    cells: list[AffinityCell]
    without_homes: Correlation | None
    with_homes: Correlation | None = Field(description="As in the paper's figure.")
    why_not: str = Field(description="Why there is no correlation.")
    changed: list[str] = Field(description="Domains whose text changed since their overlap was measured.")
    unmeasured: list[str]
    unpaired: list[str] = Field(description="Domains that were never measured together.")
    report: str | None
    measured_at: float | None


class AffinityRequest(Question[Affinity]):
    """The experts' perplexity ratios on other domains and the bigram overlap of the domains, from stored scores."""

    path = "affinity"
    rows = "cells"

    mixture: str | None = Field(None, description="Name of a mixture; left out: all experts.")
    split: Split = "test"

    def answer(self, session: Session, storage: Storage) -> Affinity:
        """The overlap of two domains is the one measured last, and None where there is none of their present text."""
        reports = list_reports(session, kind="overlap")
        hashes = dict(session.execute(select(Domain.name, Domain.data_sha256)).tuples().all())
        overlaps = _overlaps(reports, hashes)
        cells = _cells(session, self.mixture, self.split, overlaps)
        named = {name for cell in cells for name in (cell.home, cell.domain) if name}
        holding = {name for pair in overlaps for name in pair}
        changed = {name for report in reports for name in report.findings["domains"]} - holding
        pairs = {tuple(sorted((cell.home, cell.domain))) for cell in cells if cell.overlap is None}
        without_homes, why_not = _correlation(cells, with_homes=False)
        return Affinity(
            cells=cells,
            without_homes=without_homes,
            with_homes=_correlation(cells, with_homes=True)[0],
            why_not=why_not,
            changed=sorted(named & changed),
            unmeasured=sorted(named - changed - holding),
            unpaired=[" and ".join(pair) for pair in sorted(pairs) if holding >= set(pair)],
            report=reports[0].id if reports else None,
            measured_at=reports[0].created_at if reports else None,
        )


QUESTION = AffinityRequest


def _overlaps(reports: Sequence[ReportCard], hashes: Mapping[str, str]) -> Overlaps:
    """The latest measured overlap of every two domains on the text that they have now."""
    newest: dict[tuple[str, str], float] = {}
    for report in reports:  # the newest first
        names = report.findings["domains"]
        texts = zip(names, report.findings["data_sha256"], strict=True)
        holds = {name for name, sha256 in texts if hashes.get(name, sha256) == sha256}
        for first, row in zip(names, report.findings["overlap"], strict=True):
            for second, value in zip(names, row, strict=True):
                if first in holds and second in holds:
                    newest.setdefault((first, second), value)
    return newest


def _cells(session: Session, mixture: str | None, split: HeldOutSplit, overlaps: Overlaps) -> list[AffinityCell]:
    table = perplexity_table(session, mixture, split)
    homes = dict(session.execute(select(Expert.name, Domain.name).join(Expert.domain)).tuples().all())
    return [
        AffinityCell(
            expert=expert,
            domain=domain,
            home=homes.get(expert, ""),
            ratio=ratio,
            overlap=overlaps.get((homes.get(expert, ""), domain)),
        )
        for expert, row in zip(table.experts, table.specialization, strict=True)
        for domain, ratio in zip(table.domains, row, strict=True)
        if ratio is not None
    ]


def _correlation(cells: Sequence[AffinityCell], *, with_homes: bool) -> tuple[Correlation | None, str]:
    """Pearson's r of the cells, or None and why there is none."""
    from engine.text.overlap import correlation  # imported late: SciPy takes a second

    rows, columns = (
        list(dict.fromkeys(cell.expert for cell in cells)),
        list(dict.fromkeys(cell.domain for cell in cells)),
    )
    places = {(cell.expert, cell.domain): cell for cell in cells}
    homes = {cell.expert: cell.home for cell in cells}

    def matrix(number: Callable[[AffinityCell], float | None]) -> list[list[float]]:
        known = [[places.get((row, column)) for column in columns] for row in rows]
        values = [[None if cell is None else number(cell) for cell in row] for row in known]
        return [[math.nan if value is None else value for value in row] for row in values]

    at_home = [columns.index(homes[row]) if homes[row] in columns else -1 for row in rows]
    try:
        result = correlation(
            matrix(lambda cell: cell.ratio) or [[]],
            matrix(lambda cell: cell.overlap) or [[]],
            own_columns=at_home or [-1],
            with_own=with_homes,
        )
    except EngineError as error:
        return None, str(error)
    return Correlation(**asdict(result)), ""
