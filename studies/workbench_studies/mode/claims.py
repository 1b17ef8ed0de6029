"""All claims of the MoDE paper with their verdicts."""

from __future__ import annotations

from workbench_studies.core.study import read_study
from workbench_studies.core.verdicts import Verdict
from workbench_studies.mode.amounts import judge_amounts
from workbench_studies.mode.evidence import ModeEvidence
from workbench_studies.mode.multi_domain import judge_multi_domain
from workbench_studies.mode.shapes import judge_shapes

STUDY = read_study(__file__)


def judge(evidence: ModeEvidence) -> list[Verdict]:
    """Every claim of the paper."""
    return [
        *judge_multi_domain(evidence),
        *judge_shapes(evidence),
        *judge_amounts(evidence),
        *STUDY.untestable(),
    ]
