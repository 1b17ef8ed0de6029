"""Specialization: table 4, and figures 2, 4, 7 and 8."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from engine.statistics.bootstrap import Change
from engine.statistics.estimates import (
    Estimate,
    correlation_of_pairs,
    correlation_of_points,
    half_width,
    of_seeds,
    share,
)
from workbench_studies.core.study import Options
from workbench_studies.core.verdicts import Claim, Verdict, is_above, is_below, untestable
from workbench_studies.demix.evidence import DemixCase, DemixEvidence
from workbench_studies.demix.names import System, single_expert
from workbench_studies.demix.paper import STABLE_AFTER
from workbench_studies.demix.scored import Belief

SETTLED = 0.05  # a mean posterior is stable when no share moves further than this
_USUALLY = 0.5
_LEAST_DOMAINS = 5  # four can be called by each other's names in 24 ways: too few to tell one in forty


# table 4 ------------------------------------------------------------------------------------------


def naive_against_dense(evidence: DemixEvidence) -> dict[str, Estimate]:
    """The change from dense to naive DEMix in each training domain, in %."""
    naive, dense = System("naive"), System("dense")
    results = {d: evidence.resampled.changes([Change(naive, dense, d)]) for d in evidence.subject.domains}
    return {domain: one for domain, one in results.items() if one is not None}


def gains_less_with_overlap(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    evidence = case.evidence
    results, overlap = naive_against_dense(evidence), evidence.overlap
    losing = [domain for domain, one in results.items() if one.low > 0]
    ours = f"naive is worse on {len(losing)} of {len(results)}{': ' if losing else ''}{', '.join(losing)}"
    if len(results) < len(evidence.subject.domains):
        return untestable(claim)
    if overlap is None or len(results) < 4:
        return untestable(claim, "It needs at least four domains and their measured overlap.", ours)
    shared = [float(np.mean([overlap[one, other] for other in results if other != one])) for one in results]
    by_seed = [[one.by_seed[place] for one in results.values()] for place in range(_num_seeds(results.values()))]
    r = correlation_of_points(by_seed, shared)
    return is_above(claim, r, ours=ours, unit="r over domains", num_domains=len(results))


def _num_seeds(results: Iterable[Estimate]) -> int:
    return min(len(one.by_seed) for one in results)


# figure 2 -----------------------------------------------------------------------------------------


def own_expert_is_best(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    evidence = case.evidence
    domains = evidence.subject.domains
    leads = {domain: lead for domain in domains if (lead := _lead(evidence, domain))}
    if len(leads) < len(domains):
        return untestable(claim)
    ahead = sum(lead.high < 0 for lead in leads.values())
    narrowest = max(leads.values(), key=lambda lead: lead.high)
    ours = f"{ahead} of {len(leads)} domains; the least certain lead is shown"
    return is_below(claim, narrowest, ours=ours, unit="% against another expert")


def _lead(evidence: DemixEvidence, domain: str) -> Estimate | None:
    """How much less perplexity the own expert has than the one against which that is least certain, in %."""
    other_domains = [other for other in evidence.subject.domains if other != domain]
    results = [
        evidence.resampled.changes([Change(single_expert(domain), single_expert(other), domain)])
        for other in other_domains
    ]
    known = [one for one in results if one is not None]
    return max(known, key=lambda one: one.high) if known and len(known) == len(other_domains) else None


def ratios(evidence: DemixEvidence, seed: int) -> list[list[float]] | None:
    """Figure 2 in one seed: each expert's perplexity on each domain over that of the domain's own expert."""
    losses, domains = evidence.measured.losses, evidence.subject.domains
    if any((single_expert(expert), seed, domain) not in losses for expert in domains for domain in domains):
        return None
    table = [[losses[single_expert(expert), seed, domain].value for domain in domains] for expert in domains]
    return [[cell / table[place][place] for place, cell in enumerate(row)] for row in table]


def goes_with_overlap(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    evidence = case.evidence
    from engine.text.overlap import correlation

    domains, overlap = evidence.subject.domains, evidence.overlap
    tables = [table for seed in evidence.resampled.seeds if (table := ratios(evidence, seed))]
    if not tables:
        return untestable(claim)
    if overlap is None or len(domains) < _LEAST_DOMAINS:
        return untestable(claim, f"It needs at least {_LEAST_DOMAINS} domains and their measured overlap.")
    shared = [[1.0 if one == other else overlap[one, other] for other in domains] for one in domains]
    results = correlation_of_pairs(-np.array(tables), shared)
    as_printed = correlation(np.mean(tables, axis=0), shared, with_own=True)
    numbers = f"r = {as_printed.r:.2f}, t = {as_printed.t:.2f}, p = {as_printed.p:.3f}"
    ours = f"with the diagonal, as the paper counts: {numbers}"
    cells = len(domains) * (len(domains) - 1)
    unit = f"r over {cells} cells without the diagonal"
    return is_above(claim, results, ours=ours, unit=unit, num_domains=len(domains))


# figures 4, 7 and 8 -------------------------------------------------------------------------------


def own_posterior_is_highest(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    """The least certain lead of the own expert's posterior over another's, over the held-out text of every domain."""
    evidence = case.evidence
    domains = evidence.subject.domains
    beliefs = {domain: beliefs_on(evidence, domain) for domain in domains}
    if len(domains) < 2 or not all(beliefs.values()):
        return untestable(claim)
    leads = {domain: _least_margin(evidence, domain, results) for domain, results in beliefs.items()}
    updated = sum(all(_leads_at_end(one, domains.index(d)) for one in results) for d, results in beliefs.items())
    ahead = sum(one.low > 0 for one in leads.values())
    ours = f"{ahead} of {len(domains)} domains; {updated} by the updating prior at the end"
    narrowest = min(leads.values(), key=lambda one: one.low)
    return is_above(claim, narrowest, ours=f"{ours}; the least certain lead is shown", unit="of the posterior")


def beliefs_on(evidence: DemixEvidence, domain: str) -> list[Belief]:
    """The posteriors on a domain's held-out text, in every seed in which it was scored."""
    results = evidence.measured.beliefs
    return [results[seed, domain] for seed in range(evidence.subject.seeds) if (seed, domain) in results]


def _least_margin(evidence: DemixEvidence, domain: str, beliefs: Sequence[Belief]) -> Estimate:
    """How much more posterior the own expert has than the one against which that is least certain."""
    own, draws = evidence.subject.domains.index(domain), evidence.resampled.draws
    others = [place for place in range(len(evidence.subject.domains)) if place != own]
    margins = [
        draws.mean(f"{domain} dev", [(b.posterior_EN[own] - b.posterior_EN[one], b.documents_N) for b in beliefs])
        for one in others
    ]
    return min(margins, key=lambda one: one.low)


def _leads_at_end(belief: Belief, own: int) -> bool:
    return int(belief.updating_EN[:, -1].argmax()) == own


def is_spread_on_novel(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    """The entropy of the mean posterior of a domain: domains are the sample, of novel ones and of training ones."""
    evidence = case.evidence
    groups = (evidence.subject.novel, evidence.subject.domains)
    if min(map(len, groups)) < 2:
        return untestable(claim, "It needs two novel and two training domains at least.")
    beliefs = [[beliefs_on(evidence, domain) for domain in domains] for domains in groups]
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


def moved(belief: Belief) -> float | None:
    """How far any share moves from the first STABLE_AFTER blocks to as many others; None where there are too few.

    Means of different blocks: a mean that is held against its own end comes close to it whatever the text is.
    """
    if belief.posterior_EN.shape[1] < 2 * STABLE_AFTER:
        return None
    first_E, next_E = (belief.posterior_EN[:, at : at + STABLE_AFTER].mean(1) for at in (0, STABLE_AFTER))
    return float(np.abs(first_E - next_E).max())


def is_stable(case: DemixCase, claim: Claim, _: Options) -> Verdict:
    evidence = case.evidence
    results = [[moved(one) for one in beliefs_on(evidence, domain)] for domain in evidence.subject.everywhere]
    if not all(results) and evidence.subject.size.prior_blocks >= 2 * STABLE_AFTER:
        return untestable(claim)
    complete = [[one <= SETTLED for one in each if one is not None] for each in results if each and None not in each]
    if len(complete) < 2:
        return untestable(claim, f"It needs {2 * STABLE_AFTER} blocks of held-out text in two domains at least.")
    by_seed = [[one[place] for one in complete] for place in range(min(map(len, complete)))]
    ours = (
        f"{len(complete)} of {len(evidence.subject.everywhere)} domains have enough text; “usually” is more than half"
    )
    return is_above(claim, share(by_seed), _USUALLY, ours=ours, unit="of the domains", num_domains=len(complete))
