"""All claims of the DEMix paper with their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench_studies.core.shapes import SHAPES
from workbench_studies.core.study import DeclaredClaim, Test, read_study
from workbench_studies.core.verdicts import Verdict
from workbench_studies.demix import affinity, growth, interleaving, orders
from workbench_studies.demix.evidence import DemixCase, DemixEvidence
from workbench_studies.demix.names import Reading

STUDY = read_study(__file__)
TESTS: Mapping[str, Test[DemixCase]] = {
    **SHAPES,
    "lambda": orders.holds_for_lambda,
    "heterogeneous": affinity.gains_less_with_overlap,
    "own-expert": affinity.own_expert_is_best,
    "affinity": affinity.goes_with_overlap,
    "own-posterior": affinity.own_posterior_is_highest,
    "varied": affinity.is_spread_on_novel,
    "stable": affinity.is_stable,
    "demix-dapt-close": growth.comes_close,
    "adapted": growth.changes_by_adapting,
    "without-domain": growth.loses_more_without_domain,
    "interleaved": interleaving.has_more,
    "interleaved-distinct": interleaving.hits_the_most_distinct,
}


def judge(
    evidence: DemixEvidence, reading: Reading, is_chosen: Callable[[DeclaredClaim], bool] = lambda _: True
) -> list[Verdict]:
    """The declared claims under one reading of the posterior."""
    return STUDY.judge(TESTS, lambda _: [DemixCase(evidence, reading)], is_chosen)


def judge_all(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """Every claim of the paper under one reading of the posterior, those that nothing can decide last."""
    return [*judge(evidence, reading), *STUDY.untestable()]


def judge_read(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """Only the claims that depend on how the posterior and its prior are read."""
    return judge(evidence, reading, lambda claim: claim.is_read)
