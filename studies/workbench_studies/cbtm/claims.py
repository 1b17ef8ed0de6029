"""How C-BTM's claims are judged: what their names stand for, and the tests that only this paper has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from workbench_studies.cbtm.divisions import held_out
from workbench_studies.cbtm.measurements import SPARSE, CbtmMeasurements, few_smaller, frozen, in_grid
from workbench_studies.cbtm.names import (
    DENSE,
    DENSE_AT_LESS,
    MOE,
    PAPER,
    TEMPERATURES,
    Arm,
    System,
    T,
    balanced,
    printed,
    sparse,
)
from workbench_studies.cbtm.tables import operations, over_seeds, seconds_of_slowest
from workbench_studies.cbtm.tasks import is_right_more_often
from workbench_studies.core.averages import Averages, estimate_counts
from workbench_studies.core.study import SHAPES, Case, DeclaredClaim, Options, Test, leads_everywhere, read_study
from workbench_studies.core.verdicts import UNDECIDED, Claim, Verdict, is_above, is_below, untestable

STUDY = read_study(__file__)
_FIGURE = "in the figure, without numbers"
_BALANCE_MATTERS = 32  # clusters, from which on the paper sees it (§7.2)
CbtmCase = Case[CbtmMeasurements]


def judge(measured: CbtmMeasurements, is_chosen: Callable[[DeclaredClaim], bool] | None = None) -> list[Verdict]:
    """Every claim of the paper."""
    return STUDY.judge(TESTS, _cases(measured), is_chosen)


# what the names in claims stand for ---------------------------------------------------------------


def _cases(measured: CbtmMeasurements) -> Mapping[str, Sequence[CbtmCase]]:
    size, arm = measured.subject.budget, measured.subject.main
    every, most = arm.num_models, balanced(max(size.clusters))
    main = _main_case(measured)
    few = [number for number in SPARSE if 1 < number < every]
    of_many = [number for number in size.clusters if number in SPARSE and number < most.num_models]
    softest, in_table = max(TEMPERATURES), printed(every, every, max(TEMPERATURES))
    soft = main.also(
        {"softest": in_grid(arm, every, softest), "softest few": in_grid(arm, 2, softest)},
        {"printed": f"{in_table or '—'} > {PAPER['dense']}"},
    )
    return {
        "": [main],
        "clusters": [
            main.also(
                {"clusters": System(balanced(number))},
                {"clusters": balanced(number), "printed": _against(balanced(number), number, PAPER["dense"], "<")},
            )
            for number in size.clusters
            if number > 1
        ],
        "few": [
            main.also(
                {"few": sparse(arm, number)},
                {"number": number, "printed": _against(arm, number, printed(every, every), "against")},
            )
            for number in few
        ],
        "one of many": [_of_many(main, most, number) for number in of_many if number == 1],
        "few of many": [_of_many(main, most, number) for number in of_many if number > 1],
        "four of many": [_of_many(main, most, 4)] if most.num_models > max(SPARSE) else [],
        "temperature": [
            main.also(
                {"temperature": in_grid(arm, every, one)},
                {"temperature": f"{one:g}", **_cells(arm, (every, T), (every, one))},
            )
            for one in (min(TEMPERATURES), softest)
        ],
        "softest": [soft] if in_table is None or in_table > PAPER["dense"] else [],  # of two clusters it has less
        "softest few": [soft.also({}, _cells(arm, (2, softest), (every, softest)))] if every > 2 else [],
        "many balanced": [main] if every >= _BALANCE_MATTERS else [],
        "few balanced": [main] if every < _BALANCE_MATTERS else [],
        "more than four": [main] if every > 4 else [],
        "up to four": [main] if every <= 4 else [],
    }


def _main_case(measured: CbtmMeasurements) -> CbtmCase:
    subject, size, main = measured.subject, measured.subject.budget, measured.subject.main
    less = balanced(main.num_models, at_less=True)
    few, many = (pick({main.num_models, *size.also_ablated}) for pick in (min, max))
    systems = {
        "dense": System(DENSE),
        "dense less": System(DENSE_AT_LESS),
        "main": System(main),
        "main less": System(less),
        "nearest": sparse(main, 1),
        "frozen": frozen(subject),
        "average": System(main, "average"),
        "moe": System(DENSE, "moe"),
        "moe less": System(DENSE_AT_LESS, "moe"),
        "reference": System(subject.reference),
        "dense reference": System(subject.dense_reference),
        "metadata": System(subject.metadata, "cached"),
        **{division: System(subject.ablated(division)) for division in ("random", "unbalanced")},
        **{
            f"{division} {name}": System(subject.ablated(division, number))
            for division in ("balanced", "random", "unbalanced")
            for name, number in (("few", few), ("many", many))
        },
        "small dense": System(DENSE_AT_LESS, is_smaller=True),
        "small main": System(less, is_smaller=True),
        "few small main": System(less, top_k=few_smaller(less), is_smaller=True),
    }
    saved = operations(measured, size.shape) / operations(measured, size.smaller or size.shape)
    words = {
        "main": main,
        "random": subject.ablated("random"),
        "unbalanced": subject.ablated("unbalanced"),
        "metadata": subject.metadata,
        "ablated": main.num_models,
        "most": max(size.clusters),
        "printed": _against(main, 1, PAPER["dense"], "<"),
        "against": f": {many} against {few}" if few != many else "",
        "than": f"{many} clusters than with {few}" if few != many else "more clusters",
        "few_smaller": few_smaller(less),
        "saved": f" and {saved:.1f} times fewer operations" if size.smaller else "",
    }
    lacks = {
        "moe": size.moe is None,
        "shapes": size.smaller is None,
        "random_numbers": few == many,
        "unbalanced_numbers": few == many,
        "as_many_labels": subject.metadata.num_models != main.num_models,
        "classification": not measured.answers and not subject.tasks,
    }
    missing = [name for name, is_missing in lacks.items() if is_missing]
    return CbtmCase(measured, systems, {"training": subject.domains}, words, missing)


def _of_many(main: CbtmCase, many: Arm, number: int) -> CbtmCase:
    """A few of many models against as many models that are all there is."""
    as_many, few = balanced(number), sparse(many, number)
    systems = {"many": System(many), "four of many": few, "few of many": few, "as many": System(as_many)}
    return main.also(systems, {"many": many, "number": number, "as_many": as_many})


def _against(arm: Arm, top_k: int, other: float | None, sign: str) -> str:
    own = printed(arm.num_models, top_k)
    return _FIGURE if own is None or other is None else f"{own} {sign} {other} (table 9, 84B tokens)"


def _cells(arm: Arm, *cells: tuple[int, float]) -> dict[str, object]:
    return {"printed": " < ".join(str(printed(arm.num_models, *cell) or "—") for cell in cells)}


# figure 6 -----------------------------------------------------------------------------------------


def are_too_many(case: CbtmCase, claim: Claim, _: Options) -> Verdict:
    """How much more perplexity the most clusters have than the best number of fewer.

    That number is chosen on one half of the documents and judged on the other: where it is chosen it also looks
    best by chance.
    """
    domains, (*fewer, most) = case.texts["training"], sorted(case.measured.subject.budget.clusters)
    choosing, judging = (case.measured.resampled.half(which) for which in range(2))
    if not choosing.seeds_with([System(balanced(number)) for number in (*fewer, most)], domains):
        return untestable(claim)
    best = _best(choosing, [balanced(number) for number in fewer], domains)
    estimate = judging.difference(System(balanced(most)), System(best), domains)
    ours = f"best of {_join(fewer)} on one half of the documents: {best.num_models}; judged on the other half"
    return is_above(claim, estimate, ours=ours, unit="perplexity")


def best_grows(case: CbtmCase, claim: Claim, _: Options) -> Verdict:
    """Of the numbers that are best at the two budgets, how much more perplexity each has at the other's; the less.

    They are chosen on one half of the documents and judged on the other. With as many best at both budgets there is
    nothing to judge; and where that is the largest number, a larger one might be best.
    """
    numbers, domains = sorted(case.measured.subject.budget.clusters_at_less), case.texts["training"]
    if len(numbers) < 2:
        return untestable(claim, "The smaller budget has one number of clusters only.")
    choosing, judging = (case.measured.resampled.half(which) for which in range(2))
    arms = [[balanced(number, at_less=at_less) for number in numbers] for at_less in (True, False)]
    if not choosing.seeds_with([System(arm) for each in arms for arm in each], domains):
        return untestable(claim)
    before, after = (_best(choosing, each, domains).num_models for each in arms)
    ours = f"best of {_join(numbers)} on one half of the documents: {before}, then {after}; judged on the other half"
    if before == after == numbers[-1]:
        return untestable(claim, f"The most that were tried, {after}, are best at both budgets: more may be.", ours)
    if before == after:
        return Verdict(claim, UNDECIDED, f"Of {_join(numbers)} clusters {after} are best at both budgets.", ours)
    both = [balanced(number, at_less=at_less) for at_less in (True, False) for number in sorted((before, after))]
    smaller_lead = judging.estimate(  # of few clusters at the smaller budget, or of many at the full one
        [System(arm) for arm in both],
        domains,
        lambda few_less, many_less, few_full, many_full: np.minimum(many_less - few_less, few_full - many_full),
    )
    return is_above(claim, smaller_lead, ours=ours, unit="perplexity")


def _best(resampled: Averages, arms: Sequence[Arm], domains: Sequence[str]) -> Arm:
    """The arm with the least perplexity; all were scored."""
    return min(arms, key=lambda arm: resampled.value(System(arm), domains) or np.inf)


def _join(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# figures 8, 15, 16 and 18 -------------------------------------------------------------------------


def update_is_shorter_or_longer(case: CbtmCase, claim: Claim, options: Options) -> Verdict:
    """The time of an update over that of the dense model, with Student's interval over seeds."""
    key = MOE if options["of"] == MOE else case.measured.subject.main.key
    own, dense = (seconds_of_slowest(case.measured, one) for one in (key, DENSE.key))
    ratio = over_seeds([own[seed] / dense[seed] for seed in sorted(own.keys() & dense.keys())])
    return (is_above if key == MOE else is_below)(claim, ratio, 1.0, unit="times Dense's")


def own_expert_is_best(case: CbtmCase, claim: Claim, _: Options) -> Verdict:
    """The least certain lead of a cluster's own expert, over the clusters of every seed."""
    subject = case.measured.subject
    experts = [System(subject.main, "alone", expert=number) for number in range(subject.main.num_models)]
    homes = [(number, home) for run in subject.runs for number, home in enumerate(run.domains(subject.main, ()))]
    pairs = ((experts[own], [*experts[:own], *experts[own + 1 :]], home) for own, home in homes)
    return leads_everywhere(case.measured, claim, pairs, "clusters of all seeds")


def lies_in_one_cluster(case: CbtmCase, claim: Claim, options: Options) -> Verdict:
    """The share of a label in the cluster that has most of it: of the label with the most of it, or the least."""
    groupings = list(case.measured.groupings_of(case.measured.subject.main).values())
    if not groupings:
        return untestable(claim)
    pick, is_so, name = (np.max, is_above, "most") if options["most"] else (np.min, is_below, "least")
    tables = [grouping.counted for grouping in groupings]
    shares = estimate_counts(
        case.measured.resampled.draws,
        tables,
        lambda counts: np.asarray(pick(counts.max(-1) / np.maximum(counts.sum(-1), 1), axis=-1)),
    )
    ours = f"normalised mutual information {', '.join(f'{grouping.information:.2f}' for grouping in groupings)}"
    return is_so(claim, shares, 0.5, ours=ours, unit=f"of the label that lies {name} in one cluster")


def balancing_evens_sizes(case: CbtmCase, claim: Claim, options: Options) -> Verdict:
    """The range or the median of cluster sizes, balanced less unbalanced; tables are [R, balanced, unbalanced]."""
    tables = held_out(case.measured)
    if not tables:
        return untestable(claim)
    statistic, is_so = (np.ptp, is_below) if options["of"] == "range" else (np.median, is_above)
    differences = estimate_counts(
        case.measured.resampled.draws,
        tables,
        lambda counts: np.asarray(statistic(counts.sum(2), axis=-1) - statistic(counts.sum(1), axis=-1)),
    )
    return is_so(claim, differences, unit="documents")


TESTS: Mapping[str, Test] = {
    **SHAPES,
    "too-many": are_too_many,
    "best-grows": best_grows,
    "update": update_is_shorter_or_longer,
    "own-expert": own_expert_is_best,
    "label": lies_in_one_cluster,
    "size": balancing_evens_sizes,
    "right-more-often": is_right_more_often,
}
