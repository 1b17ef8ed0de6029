"""§3.3: experts in every layer, as in the paper's tables, against experts in some layers only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.statistics.bootstrap import Change
from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.study import Options
from workbench_studies.core.verdicts import Claim, Verdict, is_above, untestable
from workbench_studies.demix.evidence import DemixCase, DemixEvidence
from workbench_studies.demix.names import System

_NO_ARM = "No arm interleaves shared and expert layers at this size."
_EVERY, _SOME = System("naive"), System("interleaved")


def has_more(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    """With experts in some layers only perplexity is higher; untestable where no arm interleaves."""
    evidence, domains = case.evidence, case.texts("training")
    if evidence.subject.size.interleaved_every is None:
        return untestable(claim, _NO_ARM)
    difference = evidence.resampled.difference(_SOME, _EVERY, domains)
    return is_above(claim, difference, ours=evidence.against(_SOME, _EVERY, domains), unit="perplexity")


def hits_the_most_distinct(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    """The same on the training domain that overlaps least with the others."""
    evidence = case.evidence
    if evidence.subject.size.interleaved_every is None:
        return untestable(claim, _NO_ARM)
    if evidence.overlap is None:
        return untestable(claim)
    shared = {domain: one for domain, one in _overlaps(evidence).items() if one is not None}
    least = min(shared, key=lambda domain: shared[domain])
    change = evidence.resampled.changes([Change(_SOME, _EVERY, least)])
    return is_above(claim, change, ours=least, unit="%")


def _overlaps(evidence: DemixEvidence) -> dict[str, float | None]:
    """The mean overlap of each training domain with the others."""
    overlap, domains = evidence.overlap, evidence.subject.domains
    return {
        one: None if overlap is None else float(np.mean([overlap[one, other] for other in domains if other != one]))
        for one in domains
    }


def by_domain(evidence: DemixEvidence) -> list[Row]:
    """Each training domain's change by interleaving, with its overlap; empty where no arm interleaves."""
    return list(_rows(evidence)) if evidence.subject.size.interleaved_every is not None else []


def _rows(evidence: DemixEvidence) -> Iterator[Row]:
    for domain, overlap in _overlaps(evidence).items():
        every, some = (evidence.resampled.value(one, [domain]) for one in (_EVERY, _SOME))
        change = evidence.resampled.changes([Change(_SOME, _EVERY, domain)])
        yield {
            "domain": domain,
            "overlap with the others": overlap,
            "experts in every layer": every,
            "in some layers": some,
            **interval_columns(change, "change, %"),
        }
