"""All claims of the DEMix paper with their verdicts."""

from __future__ import annotations

from workbench_studies.core.sentences import not_testable, untestable_verdicts
from workbench_studies.core.verdicts import Verdict
from workbench_studies.demix.affinity import judge_affinity
from workbench_studies.demix.evidence import DemixEvidence
from workbench_studies.demix.growth import judge_adding, judge_growth, judge_removal
from workbench_studies.demix.interleaving import judge_interleaving
from workbench_studies.demix.names import Reading
from workbench_studies.demix.orders import ORDERS, judge_each, judge_lambda, judge_most, judge_order, judge_orders
from workbench_studies.demix.sentences import SENTENCES

BEYOND = not_testable(SENTENCES)


def judge(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """Every claim of the paper under one reading of the posterior."""
    return [
        *judge_orders(evidence, reading),
        *judge_each(evidence, reading),
        *judge_most(evidence),
        judge_lambda(evidence),
        *judge_affinity(evidence),
        *judge_growth(evidence, reading),
        *judge_interleaving(evidence),
        *untestable_verdicts(BEYOND),
    ]


def judge_read(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """Only the claims that depend on how the posterior and its prior are read."""
    orders = [judge_order(evidence, order, reading) for order in ORDERS if order.is_read]
    growth = [*judge_adding(evidence, reading), *judge_removal(evidence, reading)]
    return [*orders, *judge_each(evidence, reading), *growth]
