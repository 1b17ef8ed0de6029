"""Figures 5 and 6: perplexity by the number of clusters at equal tokens; §A.2 and §A.3: what that costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.analysis.efficiency import MeasuredCost, speedup
from engine.models.flops import elm_flops
from engine.statistics.bootstrap import Resampled
from engine.statistics.estimates import Estimate, Floats
from workbench_studies.cbtm import paper
from workbench_studies.cbtm.evidence import CbtmEvidence
from workbench_studies.cbtm.names import DENSE, DENSE_AT_LESS, SEED, Arm, System, balanced
from workbench_studies.cbtm.orders import has_less
from workbench_studies.core.findings import Row, interval_columns
from workbench_studies.core.verdicts import UNDECIDED, Claim, Verdict, is_above, untestable

_FIGURE = "in the figure, without numbers"
_TERA = 1e12
FULL = "whole"  # the budget


def judge_budgets(evidence: CbtmEvidence) -> list[Verdict]:
    """More clusters at equal tokens, and at more tokens."""
    counts = [number for number in evidence.subject.size.clusters if number > 1]
    return [
        *(_beats_dense(evidence, number) for number in counts),
        _widens(evidence),
        _has_best(evidence),
        _moves(evidence),
    ]


def _beats_dense(evidence: CbtmEvidence, number: int) -> Verdict:
    arm, printed = balanced(number), paper.printed(number, number)
    columns = f"{printed} < {paper.DENSE} (table 9, 84B tokens)" if printed else _FIGURE
    claim = Claim("Figure 5", f"{arm} have less perplexity than one, at equal tokens", columns, id="clusters-below-one")
    return has_less(evidence, claim, System(arm), System(DENSE))


def _widens(evidence: CbtmEvidence) -> Verdict:
    """The lead over the dense model at the full budget minus that at the smaller one."""
    arm = evidence.subject.main
    claim = Claim("Figure 5", f"the lead of {arm} over one grows with the tokens", _FIGURE, id="lead-grows")
    smaller = Arm(arm.division, arm.num_models, at_less=True)
    systems = [System(one) for one in (DENSE, arm, DENSE_AT_LESS, smaller)]
    estimate = evidence.resampled.estimate(
        systems, evidence.subject.domains, lambda dense, many, dense_less, less: (dense - many) - (dense_less - less)
    )
    return is_above(claim, estimate, unit="perplexity")


def _has_best(evidence: CbtmEvidence) -> Verdict:
    """How much more perplexity the most clusters have than the best number of fewer.

    That number is chosen on one half of the documents and judged on the other: where it is chosen it looks best by
    chance, too.
    """
    numbers = sorted(evidence.subject.size.clusters)
    columns = f"{paper.BEST} of 1 to 128 clusters are best, at the largest budget"
    sentence = f"{numbers[-1]} clusters are too many for the tokens: the best number of fewer has less perplexity"
    claim = Claim("Figure 6", sentence, columns, id="too-many")

    choosing, judging = (evidence.resampled.half(which) for which in range(2))
    domains, (*fewer, most) = evidence.subject.domains, numbers
    if not choosing.seeds_with([System(balanced(number)) for number in numbers], domains):
        return untestable(claim)
    best = _best(choosing, [balanced(number) for number in fewer], domains)
    estimate = judging.difference(System(balanced(most)), System(best), domains)
    ours = f"best of {_listed(fewer)} on one half of the documents: {best.num_models}; judged on the other half"
    return is_above(claim, estimate, ours=ours, unit="perplexity")


def _moves(evidence: CbtmEvidence) -> Verdict:
    """Of the numbers that are best at the two budgets, how much more perplexity each has at the other's; the less.

    They are chosen on one half of the documents and judged on the other. With as many best at both budgets there is
    nothing to judge; and where that is the largest number, a larger one might be best.
    """
    claim = Claim("Figure 6", "the best number of clusters grows with the tokens", _FIGURE, id="best-grows")
    numbers, domains = sorted(evidence.subject.size.clusters_at_less), evidence.subject.domains
    if len(numbers) < 2:
        return untestable(claim, "The smaller budget has one number of clusters only.")
    choosing, judging = (evidence.resampled.half(which) for which in range(2))
    arms = [[balanced(number, at_less=at_less) for number in numbers] for at_less in (True, False)]
    if not choosing.seeds_with([System(arm) for each in arms for arm in each], domains):
        return untestable(claim)
    before, after = (_best(choosing, each, domains).num_models for each in arms)
    ours = f"best of {_listed(numbers)} on one half of the documents: {before}, then {after}; judged on the other half"
    if before == after == numbers[-1]:
        return untestable(claim, f"The most that were tried, {after}, are best at both budgets: more may be.", ours)
    if before == after:
        return Verdict(claim, UNDECIDED, f"Of {_listed(numbers)} clusters {after} are best at both budgets.", ours)
    few, many = sorted((before, after))
    return is_above(claim, _crossing(judging, few, many, domains), ours=ours, unit="perplexity")


def _crossing(resampled: Resampled, few: int, many: int, domains: Sequence[str]) -> Estimate | None:
    """The smaller of two leads: that of few clusters at the smaller budget, and that of many at the full one."""
    arms = [balanced(number, at_less=at_less) for at_less in (True, False) for number in (few, many)]

    def smaller(few_less: Floats, many_less: Floats, few_full: Floats, many_full: Floats) -> Floats:
        return np.minimum(many_less - few_less, few_full - many_full)

    return resampled.estimate([System(arm) for arm in arms], domains, smaller)


def _best(resampled: Resampled, arms: Sequence[Arm], domains: Sequence[str]) -> Arm:
    """The arm of least perplexity, all of which were scored."""
    return min(arms, key=lambda arm: _value(resampled, arm, domains))


def _value(resampled: Resampled, arm: Arm, domains: Sequence[str]) -> float:
    estimate = resampled.average(System(arm), domains)
    return math.inf if estimate is None else estimate.value


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# tables -------------------------------------------------------------------------------------------


def by_clusters(evidence: CbtmEvidence) -> list[Row]:
    """Perplexity by budget and number of clusters; the seed model first."""
    size = evidence.subject.size
    full, less = (tokens_seen(evidence, at_less=at_less) for at_less in (False, True))
    arms = [*(balanced(n, at_less=True) for n in sorted(size.clusters_at_less)), *map(balanced, sorted(size.clusters))]
    rows: list[Row] = [_row(evidence, SEED, {"clusters": None, "tokens after branching": 0, "budget": "seed model"})]
    for arm in arms:
        columns = {"clusters": arm.num_models, "tokens after branching": less if arm.at_less else full}
        name = f"{size.less:g} of the updates" if arm.at_less else FULL
        rows.append(_row(evidence, System(arm), columns | {"budget": name}))
    return [row | {"paper": _printed_at(row["clusters"], row["budget"])} for row in rows]


def by_domain(evidence: CbtmEvidence) -> list[Row]:
    """Perplexity on each training and novel domain, by the number of clusters at the full budget."""
    arms = map(balanced, sorted(evidence.subject.size.clusters))
    systems = {"seed model": SEED} | {str(arm): System(arm) for arm in arms}
    rows: list[Row] = []
    for domain in evidence.subject.everywhere:
        measured = {name: evidence.resampled.average(system, [domain]) for name, system in systems.items()}
        role = "novel" if domain in evidence.subject.novel else "training"
        rows.append({"domain": domain, "role": role, **{name: one and one.value for name, one in measured.items()}})
    return rows


def _printed_at(clusters: int | None, budget: str) -> float | None:
    """Table 9 is of one budget."""
    return paper.printed(clusters, clusters) if clusters and budget == FULL else None


def _row(evidence: CbtmEvidence, system: System, columns: Row) -> Row:
    estimate = evidence.resampled.average(system, evidence.subject.domains)
    novel = evidence.resampled.average(system, evidence.subject.novel)
    return columns | interval_columns(estimate) | {"novel domains": novel.value if novel else None}


def tokens_seen(evidence: CbtmEvidence, *, at_less: bool) -> int:
    """The number of tokens that all models of an arm read together after branching."""
    size = evidence.subject.size
    share = size.less if at_less else 1.0
    return int(share * size.training.num_steps * size.training.sequences_per_domain * size.block_size)


def seeding_tokens(evidence: CbtmEvidence) -> int:
    """The number of tokens the seed model read before branching; batches take as many sequences of each domain."""
    seeding = evidence.subject.size.seeding
    return seeding.num_steps * seeding.sequences_per_domain * len(evidence.subject.domains) * seeding.block_size


def efficiency(evidence: CbtmEvidence) -> list[Row]:
    """§A.2 and §A.3: operations of all models of an arm, and how many times less than Dense for Dense's perplexity."""
    dense = _curve(evidence, 1)
    target = dense[-1].performance if dense else None
    rows: list[Row] = []
    for number in sorted({*evidence.subject.size.clusters_at_less, 1}):
        curve = _curve(evidence, number)
        reached = speedup(target, dense, curve) if target is not None and curve else None
        rows.append(
            {
                "clusters": number,
                "TFLOPs of each model": _flops(evidence, tokens_seen(evidence, at_less=False), number) / _TERA,
                "TFLOPs of all": number * _flops(evidence, tokens_seen(evidence, at_less=False), number) / _TERA,
                "perplexity": curve[-1].performance if curve else None,
                "speed-up at Dense's last perplexity": reached,
            }
        )
    return rows


def _curve(evidence: CbtmEvidence, number: int) -> list[MeasuredCost]:
    """Perplexity by operations: the seed model, the smaller budget, the full one; the seed model's cost is in all."""
    points = (
        (SEED, 0),
        (System(balanced(number, at_less=True)), tokens_seen(evidence, at_less=True)),
        (System(balanced(number)), tokens_seen(evidence, at_less=False)),
    )
    before = _flops(evidence, seeding_tokens(evidence))
    estimate = [
        (evidence.resampled.average(one, evidence.subject.domains), _flops(evidence, num)) for one, num in points
    ]
    return [MeasuredCost(one.value, before + cost) for one, cost in estimate if one]


def _flops(evidence: CbtmEvidence, num_tokens: int, num_clusters: int = 1) -> float:
    """Operations of one of so many models when all together see these tokens (§A.2)."""
    size = evidence.subject.size
    return elm_flops(
        size.shape.num_layers, size.shape.width, size.vocab_size, num_tokens, size.block_size, num_clusters
    )
