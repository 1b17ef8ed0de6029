"""All claims of the MoDE paper with their verdicts."""

from __future__ import annotations

from workbench.replications.mode.amounts import judge_amounts
from workbench.replications.mode.evidence import ModeEvidence
from workbench.replications.mode.multi_domain import judge_multi_domain
from workbench.replications.mode.sentences import SENTENCES
from workbench.replications.mode.shapes import judge_shapes
from workbench.replications.sentences import not_testable, untestable_verdicts
from workbench.replications.verdicts import Verdict

BEYOND = not_testable(SENTENCES)


def judge(evidence: ModeEvidence) -> list[Verdict]:
    """Every claim of the paper."""
    return [
        *judge_multi_domain(evidence),
        *judge_shapes(evidence),
        *judge_amounts(evidence),
        *untestable_verdicts(BEYOND),
    ]
