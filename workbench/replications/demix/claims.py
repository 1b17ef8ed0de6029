"""All claims of the DEMix paper with their verdicts."""

from __future__ import annotations

from workbench.replications.demix.affinity import judge_affinity
from workbench.replications.demix.evidence import DemixEvidence
from workbench.replications.demix.growth import judge_adding, judge_growth
from workbench.replications.demix.names import Reading
from workbench.replications.demix.orders import ORDERS, judge_order, judge_orders
from workbench.replications.verdicts import Claim, Verdict, untestable

_OTHER_SIZE = "Needs models of several sizes; a replication has one."
_OTHER_TEXT = "Needs the paper's own domains, which are not published."
BEYOND = (
    (_OTHER_SIZE, "Table 3", "as models grow, Dense catches up: at 1.3B it ties DEMix (naive)", "13.8 and 13.8"),
    (_OTHER_SIZE, "§5.4", "small DEMix models match larger Dense ones on novel text", "21.4 at 125M, 21.4 at 350M"),
    (_OTHER_TEXT, "§5.4", "the largest gain over Dense is on Tweets", "67 % better"),
    (_OTHER_TEXT, "Table 4", "DEMix (naive) loses on WebText", "14.6 > 13.8"),
    (_OTHER_TEXT, "Table 4", "DEMix (naive) loses on RealNews and Reddit", "13.3 > 12.5, 30.6 > 28.4"),
    (_OTHER_TEXT, "Table 7", "–Expert is worse than –Domain on WebText and RealNews", "27.3 > 25.4, 26.7 > 25.0"),
)


def judge(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """Every claim of the paper under one reading of the posterior."""
    beyond = [untestable(Claim(where, sentence, printed), why) for why, where, sentence, printed in BEYOND]
    return [*judge_orders(evidence, reading), *judge_affinity(evidence), *judge_growth(evidence, reading), *beyond]


def judge_read(evidence: DemixEvidence, reading: Reading) -> list[Verdict]:
    """Only the claims that depend on how the posterior and its prior are read."""
    orders = [judge_order(evidence, order, reading) for order in ORDERS if order.is_read]
    return [*orders, *judge_adding(evidence, reading)]
