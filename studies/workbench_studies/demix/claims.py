"""How DEMix's claims are judged: what their names stand for, and the tests that only this paper has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import numpy as np

from engine.statistics.estimates import Estimate, half_width, of_seeds
from workbench_studies.core.averages import (
    SystemChange,
    correlation_of_pairs,
    correlation_of_points,
    estimate_mean,
    share,
)
from workbench_studies.core.study import (
    SHAPES,
    Case,
    DeclaredClaim,
    Options,
    Test,
    holds_on_most,
    leads_everywhere,
    read_study,
)
from workbench_studies.core.verdicts import FLOOR, Claim, Verdict, is_above, is_below, untestable
from workbench_studies.demix.measurements import (
    SETTLED,
    STABLE_AFTER,
    Belief,
    DemixMeasurements,
    drift_of,
    ratios_by_seed,
)
from workbench_studies.demix.names import GRID, PAPER, Reading, System, Variant, system

STUDY = read_study(__file__)
_USUALLY = 0.5
_LEAST_DOMAINS = 5  # four can be called by each other's names in 24 ways: too few to tell one in forty
DemixCase = Case[DemixMeasurements]


def judge(
    measured: DemixMeasurements,
    reading: Reading = PAPER,
    is_chosen: Callable[[DeclaredClaim], bool] | None = None,
) -> list[Verdict]:
    """Every claim of the paper under one reading of the posterior, by default its own."""
    return STUDY.judge(TESTS, {"": [case_of(measured, reading)]}, is_chosen)


def case_of(measured: DemixMeasurements, reading: Reading) -> DemixCase:
    """What the names of claims stand for under one reading: systems by their mode, adapted ones by their target."""
    subject = measured.subject
    systems = {mode: system(mode, reading) for mode in get_args(Variant)}
    for novel in subject.novel:
        systems[f"dense-dapt {novel}"] = System("dense-dapt", domain=novel)
        systems[f"demix-dapt {novel}"] = system("demix-dapt", reading, novel)
    texts = {
        "training": subject.domains,
        "novel": subject.novel,
        "everywhere": subject.everywhere,
        "removed": subject.removed,
    }
    has_arms = {"removed": bool(subject.removed), "interleaved": subject.budget.interleaved_every is not None}
    words = {"removed": ", ".join(subject.removed)}
    return DemixCase(measured, systems, texts, words, [name for name, is_there in has_arms.items() if not is_there])


# tables 3 to 5, figure 2 --------------------------------------------------------------------------


def holds_for_lambda(case: DemixCase, claim: Claim, options: Options) -> Verdict:
    """What the paper says of λ in most settings: domains, training and novel, are the settings and the sample."""
    chosen = system("updating", GRID[options["chosen"]])
    others = [system("updating", reading) for value, reading in GRID.items() if value != options["chosen"]]
    domains = case.texts["everywhere"]
    every = [[case.measured.change(chosen, other, [domain]) for other in others] for domain in domains]
    known = [[one for one in row if one is not None] for row in every]
    if not known or any(len(row) < len(others) for row in known):
        return untestable(claim)
    return holds_on_most(claim, known, options["border"])


def gains_less_with_overlap(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    measured, domains = case.measured, case.texts["training"]
    results = measured.change_by_domain(case.systems["naive"], case.systems["dense"], domains)
    losing = [domain for domain, result in results.items() if result.low > 0]
    ours = f"naive is worse on {len(losing)} of {len(results)}{': ' if losing else ''}{', '.join(losing)}"
    if len(results) < len(domains):
        return untestable(claim)
    if measured.overlap is None or len(results) < 4:
        return untestable(claim, "It needs at least four domains and their measured overlap.", ours)
    shared = [one for one in measured.overlap_with_others(domains).values() if one is not None]
    num_seeds = min(len(result.by_seed) for result in results.values())
    by_seed = [[result.by_seed[number] for result in results.values()] for number in range(num_seeds)]
    r = correlation_of_points(by_seed, shared)
    return is_above(claim, r, ours=ours, unit="r over domains", num_domains=len(results))


def own_expert_is_best(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    experts = {domain: System("alone", domain=domain) for domain in case.texts["training"]}
    pairs = (
        (expert, [other for other in experts.values() if other != expert], home) for home, expert in experts.items()
    )
    return leads_everywhere(case.measured, claim, pairs, "domains")


def goes_with_overlap(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    from engine.text.overlap import correlation

    measured, domains, overlap = case.measured, case.texts["training"], case.measured.overlap
    ratio_tables = ratios_by_seed(measured)
    if not ratio_tables:
        return untestable(claim)
    if overlap is None or len(domains) < _LEAST_DOMAINS:
        return untestable(claim, f"It needs at least {_LEAST_DOMAINS} domains and their measured overlap.")
    shared = [[1.0 if domain == other else overlap[domain, other] for other in domains] for domain in domains]
    results = correlation_of_pairs(-np.array(ratio_tables), shared)
    as_printed = correlation(np.mean(ratio_tables, axis=0), shared, with_own=True)
    numbers = f"r = {as_printed.r:.2f}, t = {as_printed.t:.2f}, p = {as_printed.p:.3f}"
    ours = f"with the diagonal, as the paper counts: {numbers}"
    unit = f"r over {len(domains) * (len(domains) - 1)} cells without the diagonal"
    return is_above(claim, results, ours=ours, unit=unit, num_domains=len(domains))


# figures 4, 7 and 8 -------------------------------------------------------------------------------


def own_posterior_is_highest(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    """The least certain lead of the own expert's posterior over another's, over the held-out text of every domain."""
    measured, domains = case.measured, case.texts["training"]
    beliefs = {domain: measured.beliefs_on(domain) for domain in domains}
    if len(domains) < 2 or not all(beliefs.values()):
        return untestable(claim)
    leads = [_least_margin(measured, domain, results) for domain, results in beliefs.items()]
    updated = sum(
        all(int(result.updating_EN[:, -1].argmax()) == domains.index(domain) for result in results)
        for domain, results in beliefs.items()
    )
    ahead = sum(lead.low > 0 for lead in leads)
    ours = f"{ahead} of {len(domains)} domains; {updated} by the updating prior at the end"
    narrowest = min(leads, key=lambda lead: lead.low)
    return is_above(claim, narrowest, ours=f"{ours}; the least certain lead is shown", unit="of the posterior")


def _least_margin(measured: DemixMeasurements, domain: str, beliefs: Sequence[Belief]) -> Estimate:
    """How much more posterior the own expert has than the one against which that is least certain."""
    own, draws = measured.subject.domains.index(domain), measured.resampled.draws
    others = [number for number in range(len(measured.subject.domains)) if number != own]
    margins = [
        estimate_mean(
            draws, f"{domain} dev", [(b.posterior_EN[own] - b.posterior_EN[one], b.documents_N) for b in beliefs]
        )
        for one in others
    ]
    return min(margins, key=lambda margin: margin.low)


def is_spread_on_novel(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    """The entropy of the mean posterior of a domain: domains are the sample, of novel ones and of training ones."""
    groups = (case.texts["novel"], case.texts["training"])
    if min(map(len, groups)) < 2:
        return untestable(claim, "It needs two novel and two training domains at least.")
    beliefs = [[case.measured.beliefs_on(domain) for domain in domains] for domains in groups]
    if not all(each for group in beliefs for each in group):
        return untestable(claim)
    seeds = range(min(len(each) for group in beliefs for each in group))
    novel_SD, training_SD = ([[_entropy(each[seed]) for each in group] for seed in seeds] for group in beliefs)
    by_seed = tuple(float(np.mean(one) - np.mean(other)) for one, other in zip(novel_SD, training_SD, strict=True))
    reach = half_width([*of_seeds(np.mean(novel_SD, axis=0)), *of_seeds(np.mean(training_SD, axis=0))])
    value = float(np.mean(by_seed))
    difference = Estimate(value, value - reach, value + reach, by_seed).over_seeds()
    return is_above(claim, difference, unit="nats of entropy", num_domains=sum(map(len, groups)))


def _entropy(belief: Belief) -> float:
    """The entropy of the mean posterior, in nats."""
    mean_E = belief.posterior_EN.mean(1)
    return float(-(mean_E * np.log(np.maximum(mean_E, 1e-12))).sum())


def is_stable(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    measured, domains = case.measured, case.texts["everywhere"]
    results = [[drift_of(one) for one in measured.beliefs_on(domain)] for domain in domains]
    if not all(results) and measured.subject.budget.prior_blocks >= 2 * STABLE_AFTER:
        return untestable(claim)
    complete = [[one <= SETTLED for one in each if one is not None] for each in results if each and None not in each]
    if len(complete) < 2:
        return untestable(claim, f"It needs {2 * STABLE_AFTER} blocks of held-out text in two domains at least.")
    by_seed = [[one[number] for one in complete] for number in range(min(map(len, complete)))]
    ours = f"{len(complete)} of {len(domains)} domains have enough text; “usually” is more than half"
    return is_above(claim, share(by_seed), _USUALLY, ours=ours, unit="of the domains", num_domains=len(complete))


# figure 6, table 13: adapting; §3.3: interleaving -------------------------------------------------


def changes_by_adapting(case: DemixCase, claim: Claim, options: Options) -> Verdict:
    """From one system to another, of every target to which a model was adapted: on it, or on the training domains."""
    changes = [
        SystemChange(_system_on(case, options["after"], target), _system_on(case, options["before"], target), domain)
        for target in _targets(case, options["after"])
        for domain in ([target] if options["on"] == "target" else case.texts[options["on"]])
    ]
    is_so = is_above if options["side"] == "above" else is_below
    return is_so(claim, case.measured.resampled.changes(changes), options.get("border", 0.0), unit="%")


def _system_on(case: DemixCase, mode: str, target: str) -> object:
    return case.systems.get(f"{mode} {target}", case.systems[mode])


def _targets(case: DemixCase, mode: str) -> list[str]:
    """The novel domains to which a model was adapted and scored, in some seed."""
    training, resampled = case.texts["training"], case.measured.resampled
    return [one for one in case.texts["novel"] if resampled.seeds_with([_system_on(case, mode, one)], [*training, one])]


def comes_close(case: DemixCase, claim: Claim, options: Options) -> Verdict:
    """How far DEMix-DAPT is from dense-DAPT on each target; the one on which it is least surely close is judged."""
    measured, known, collapsed = case.measured, {}, []
    for target in _targets(case, "demix-dapt"):
        demix, dense = (_system_on(case, mode, target) for mode in ("demix-dapt", "dense-dapt"))
        if change := measured.change(demix, dense, [target]):
            known[target] = change
            own = measured.change(dense, case.systems["dense"], [target])
            collapsed += [f"{target} ({own.value:+.0f} %)"] if own and own.value > 0 else []
    if not known:
        return untestable(claim)
    each = ", ".join(f"{novel} {change.value:+.0f} %" for novel, change in known.items())
    if collapsed:
        why = f"dense-DAPT ended above the untouched Dense on its own target: {', '.join(collapsed)}."
        return untestable(claim, f"{FLOOR}{why}", each)
    worst = max(known.values(), key=lambda change: change.high)
    ours = f"perplexity against dense-DAPT's: {each}; the least surely close is shown"
    return is_below(claim, worst, options["border"], ours=ours, unit="%")


def hits_the_most_distinct(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    """Interleaving on the training domain that overlaps least with the others."""
    overlaps = case.measured.overlap_with_others(case.texts["training"])
    shared = {domain: overlap for domain, overlap in overlaps.items() if overlap is not None}
    if not shared:
        return untestable(claim)
    least = min(shared, key=lambda domain: shared[domain])
    change = case.measured.change(case.systems["interleaved"], case.systems["naive"], [least])
    return is_above(claim, change, ours=least, unit="%")


TESTS: Mapping[str, Test] = {
    **SHAPES,
    "lambda": holds_for_lambda,
    "heterogeneous": gains_less_with_overlap,
    "own-expert": own_expert_is_best,
    "affinity": goes_with_overlap,
    "own-posterior": own_posterior_is_highest,
    "varied": is_spread_on_novel,
    "stable": is_stable,
    "demix-dapt-close": comes_close,
    "adapted": changes_by_adapting,
    "interleaved-distinct": hits_the_most_distinct,
}
