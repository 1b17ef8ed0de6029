"""All claims of the C-BTM paper with their verdicts."""

from __future__ import annotations

from workbench.replications.cbtm.budgets import judge_budgets
from workbench.replications.cbtm.clusters import judge_clusters
from workbench.replications.cbtm.evidence import CbtmEvidence
from workbench.replications.cbtm.tasks import judge_tasks
from workbench.replications.cbtm.upcycling import judge_upcycling
from workbench.replications.cbtm.weighing import judge_weighing
from workbench.replications.verdicts import Claim, Verdict, untestable

_OTHER_SIZE = "Needs experts of several sizes; a replication has one."
_NO_GPUS = "Needs several GPUs that wait for each other."
_NO_BUDGET = "Needs budgets beyond that of a replication."
_FEW_ARMS = "A replication has random clusters in one number only."
BEYOND = (
    (_OTHER_SIZE, "Figure 7", "the same holds for experts of 6.7B parameters", "8 clusters best at 21B tokens"),
    (_NO_GPUS, "Figure 8", "models of more clusters have faster updates", "in the figure"),
    (_OTHER_SIZE, "Figure 11", "16 clusters, top-4, need less training than a larger dense model", "3.5 times less"),
    (_NO_BUDGET, "Figure 12", "with still more tokens a mixture of experts diverges", "“consistently explode”"),
    (_FEW_ARMS, "Figure 13", "random clusters harm more as there are more of them", "in the figure"),
)


def judge(evidence: CbtmEvidence) -> list[Verdict]:
    """Every claim of the paper."""
    beyond = [untestable(Claim(where, sentence, printed), why) for why, where, sentence, printed in BEYOND]
    return [
        *judge_budgets(evidence),
        *judge_weighing(evidence),
        *judge_upcycling(evidence),
        *judge_clusters(evidence),
        *judge_tasks(evidence),
        *beyond,
    ]
