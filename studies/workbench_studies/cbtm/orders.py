"""Which way to divide the text, or to weigh the models, has less perplexity than which other; averages over domains."""

from __future__ import annotations

from engine.statistics.bootstrap import Change
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.names import System
from workbench_studies.core.verdicts import Claim, Verdict, is_below

COMPARABLE = 1.0  # %: what is “comparable” rises by less than this


def has_less(evidence: CbtmEvidence, claim: Claim, lower: System, higher: System) -> Verdict:
    """One system has less perplexity than another on the training domains."""
    domains = evidence.subject.domains
    own = [evidence.resampled.average(one, domains) for one in (lower, higher)]
    ours = " against ".join(f"{one.value:.2f}" for one in own if one)
    return is_below(claim, evidence.resampled.difference(lower, higher, domains), ours=ours, unit="perplexity")


def is_comparable(
    evidence: CbtmEvidence, claim: Claim, system: System, other: System, border: float = COMPARABLE
) -> Verdict:
    """A system rises over another by less than a border in %, on average over the training domains."""
    changes = [Change(system, other, domain) for domain in evidence.subject.domains]
    return is_below(claim, evidence.resampled.changes(changes), border, unit="%")
