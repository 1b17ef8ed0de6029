"""All claims of the C-BTM paper with their verdicts."""

from __future__ import annotations

from workbench.replications.cbtm.budgets import judge_budgets
from workbench.replications.cbtm.clusters import judge_clusters
from workbench.replications.cbtm.evidence import CbtmEvidence
from workbench.replications.cbtm.sentences import SENTENCES
from workbench.replications.cbtm.shapes import judge_shapes
from workbench.replications.cbtm.tasks import judge_tasks
from workbench.replications.cbtm.upcycling import judge_upcycling
from workbench.replications.cbtm.updates import judge_updates
from workbench.replications.cbtm.weighing import judge_weighing
from workbench.replications.sentences import not_testable, untestable_verdicts
from workbench.replications.verdicts import Verdict

BEYOND = not_testable(SENTENCES)


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
        *untestable_verdicts(BEYOND),
    ]
