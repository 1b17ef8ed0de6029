"""All claims of the MoDE paper with their verdicts."""

from __future__ import annotations

from workbench.replications.mode.amounts import judge_amounts
from workbench.replications.mode.evidence import ModeEvidence
from workbench.replications.mode.multi_domain import judge_multi_domain
from workbench.replications.mode.shapes import judge_shapes
from workbench.replications.verdicts import Claim, Verdict, untestable

_SEVERAL = "Needs several devices; python benchmarks/mode_mpmd.py --figures prints what a model of their cost says."
_EMBEDDINGS = "LoRA has no adapters of embeddings here."
BEYOND = (
    (_EMBEDDINGS, "Table 2", "adapting the embeddings, too, costs accuracy on Code", "75.81 < 76.17"),
    (_SEVERAL, "Figure 4a", "on meshes of their own, backbone and experts take less time", "204 of 329 ms a step"),
    (_SEVERAL, "Figure 4a", "3 and 5 meshes take about as long", "in the figure"),
    (_SEVERAL, "Figure 4b", "small and large experts are faster on one mesh", "in the figure"),
    (_SEVERAL, "Figure 4c", "with more merges a step takes longer", "in the figure"),
)


def judge(evidence: ModeEvidence) -> list[Verdict]:
    """Every claim of the paper."""
    beyond = [untestable(Claim(where, sentence, printed), why) for why, where, sentence, printed in BEYOND]
    return [*judge_multi_domain(evidence), *judge_shapes(evidence), *judge_amounts(evidence), *beyond]
