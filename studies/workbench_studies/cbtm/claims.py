"""All claims of the C-BTM paper with their verdicts."""

from __future__ import annotations

from workbench_studies.cbtm.budgets import judge_budgets
from workbench_studies.cbtm.clusters import judge_clusters
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.shapes import judge_shapes
from workbench_studies.cbtm.tasks import judge_tasks
from workbench_studies.cbtm.upcycling import judge_upcycling
from workbench_studies.cbtm.updates import judge_updates
from workbench_studies.cbtm.weighing import judge_weighing
from workbench_studies.core.study import read_study
from workbench_studies.core.verdicts import Verdict

STUDY = read_study(__file__)


def judge(evidence: CbtmEvidence) -> list[Verdict]:
    """Every claim of the paper."""
    return [
        *judge_budgets(evidence),
        *judge_weighing(evidence),
        *judge_upcycling(evidence),
        *judge_clusters(evidence),
        *judge_shapes(evidence),
        *judge_updates(evidence),
        *judge_tasks(evidence),
        *STUDY.untestable(),
    ]
