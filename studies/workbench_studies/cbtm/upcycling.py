"""Figure 12: a sparsely upcycled mixture of experts beside clusters and the dense model, at equal tokens (§6)."""

from __future__ import annotations

from workbench_studies.cbtm.budgets import tokens_seen
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.names import DENSE, Arm, System, balanced, upcycled
from workbench_studies.cbtm.orders import has_less
from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import Claim, Verdict, untestable

_NO_COUNTERPART = "transformers has no mixture of experts with this family's attention and positions."
MODEL = "mixture of experts"


def judge_upcycling(evidence: CbtmEvidence) -> list[Verdict]:
    """Ahead of the clusters with few tokens, behind them and behind one model with many."""
    main = evidence.subject.main
    less = balanced(main.num_models, at_less=True)
    orders = (
        ("moe-below-at-less", f"at the smaller budget a {MODEL} has less perplexity than {main}", True, System(less)),
        ("moe-above-clusters", f"at the whole budget a {MODEL} has more perplexity than {main}", False, System(main)),
        ("moe-above-one", f"at the whole budget a {MODEL} has more perplexity than one cluster", False, System(DENSE)),
    )
    return [_order(evidence, *order) for order in orders]


def _order(evidence: CbtmEvidence, id: str, sentence: str, is_ahead: bool, other: System) -> Verdict:
    """Ahead means the smaller budget."""
    claim = Claim("Figure 12", sentence, "in the figure, without numbers; 16 clusters, 32 networks", id=id)
    if evidence.subject.size.moe is None:
        return untestable(claim, _NO_COUNTERPART)
    own = upcycled(balanced(1, at_less=is_ahead))
    return has_less(evidence, claim, *((own, other) if is_ahead else (other, own)))


def by_budget(evidence: CbtmEvidence) -> list[Row]:
    """Perplexity of the mixture of experts, the main arm and the dense model at both budgets."""
    if evidence.subject.size.moe is None:
        return []
    rows: list[Row] = []
    for at_less in (True, False):
        one, main = (balanced(number, at_less=at_less) for number in (1, evidence.subject.main.num_models))
        rows += [
            _row(evidence, str(one), one, System(one)),
            _row(evidence, str(main), main, System(main)),
            _row(evidence, MODEL, one, upcycled(one)),
        ]
    return rows


def _row(evidence: CbtmEvidence, name: str, arm: Arm, system: System) -> Row:
    novel = evidence.resampled.average(system, evidence.subject.novel)
    return {
        "model": name,
        "tokens after branching": tokens_seen(evidence, at_less=arm.at_less),
        **interval_columns(evidence.resampled.average(system, evidence.subject.domains)),
        "novel domains": novel.value if novel else None,
    }
