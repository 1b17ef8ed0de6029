"""Who is at home where: table 4, and figures 2, 4, 7 and 8."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from workbench.replications.bootstrap import Estimate, Floats, Step, mean_interval
from workbench.replications.demix import alone
from workbench.replications.evidence import Evidence
from workbench.replications.paper import FIGURE_2, STABLE_AFTER
from workbench.replications.scored import Belief
from workbench.replications.verdicts import Claim, Verdict, is_above, is_below, untestable

SETTLED = 0.05  # a posterior's shares have settled when none moves further than this
_PAPER_BLOCKS = 100
_95 = 1.959964  # standard deviations

TABLE_4 = Claim(
    "Table 4", "DEMix (naive) loses against Dense where a domain overlaps more with the others",
    "1.3B: worse on WebText, RealNews and Reddit, better on the other five",
)  # fmt: skip
DIAGONAL = Claim("Figure 2", "on each training domain its own expert has the least perplexity", "8 of 8 domains")
AFFINITY = Claim(
    "Figure 2", "an expert's affinity to a domain goes with the bigram overlap",
    f"r = {FIGURE_2['r']:.2f}, t = {FIGURE_2['t']}, p = {FIGURE_2['p']}",
)  # fmt: skip
KNOWN = Claim("Figure 4", "on each training domain its own expert has the highest posterior", "8 of 8 domains")
STABLE = Claim(
    "Figures 7, 8", "the posterior of a domain is stable after about 50 blocks", "“usually after around 50 blocks”"
)


def judge_affinity(evidence: Evidence) -> list[Verdict]:
    """All claims on who is at home where."""
    return [_heterogeneous(evidence), _diagonal(evidence), _affinity(evidence), _known(evidence), _stable(evidence)]


# table 4 ------------------------------------------------------------------------------------------


def naive_against_dense(evidence: Evidence) -> dict[str, Estimate]:
    """The change from dense to naive DEMix in each training domain, in %."""
    found = {d: evidence.resampled.changes([Step("naive", "dense", d)]) for d in evidence.subject.domains}
    return {domain: one for domain, one in found.items() if one is not None}


def _heterogeneous(evidence: Evidence) -> Verdict:
    found, overlap = naive_against_dense(evidence), evidence.overlap
    losing = [domain for domain, one in found.items() if one.low > 0]
    ours = f"naive is worse on {len(losing)} of {len(found)}{': ' if losing else ''}{', '.join(losing)}"
    if len(found) < len(evidence.subject.domains):
        return untestable(TABLE_4)
    if overlap is None or len(found) < 4:
        return untestable(TABLE_4, "It needs at least four domains and their measured overlap.", ours)
    shared = [float(np.mean([overlap[one, other] for other in found if other != one])) for one in found]
    by_seed = [[one.by_seed[place] for one in found.values()] for place in range(_num_seeds(found.values()))]
    return is_above(TABLE_4, correlated(by_seed, shared), ours=ours, unit="r over domains")


def _num_seeds(found: Iterable[Estimate]) -> int:
    return min(len(one.by_seed) for one in found)


def correlated(values_SN: Sequence[Sequence[float]], other_N: Sequence[float]) -> Estimate | None:
    """Pearson's r of the mean over seeds, with Fisher's interval; None where nothing varies or points are too few."""
    from scipy import stats

    mean_N = np.mean(values_SN, axis=0)
    num_points = len(mean_N)
    if num_points < 4 or np.ptp(mean_N) == 0 or np.ptp(other_N) == 0:
        return None
    r = float(stats.pearsonr(mean_N, other_N).statistic)
    middle, reach = math.atanh(min(max(r, -0.999999), 0.999999)), _95 / math.sqrt(num_points - 3)
    each = tuple(float(stats.pearsonr(values_N, other_N).statistic) for values_N in values_SN)
    return Estimate(r, math.tanh(middle - reach), math.tanh(middle + reach), each)


# figure 2 -----------------------------------------------------------------------------------------


def _diagonal(evidence: Evidence) -> Verdict:
    leads = [lead for domain in evidence.subject.domains if (lead := _lead(evidence, domain))]
    if not leads or len(leads) < len(evidence.subject.domains):
        return untestable(DIAGONAL)
    ahead = sum(lead.high < 0 for lead in leads)
    narrowest = max(leads, key=lambda lead: lead.high)
    ours = f"{ahead} of {len(leads)} domains; the narrowest lead is shown"
    return is_below(DIAGONAL, narrowest, ours=ours, unit="% against the next best expert")


def _lead(evidence: Evidence, domain: str) -> Estimate | None:
    """How much less perplexity the own expert has than the next best one, in %."""
    strangers = [other for other in evidence.subject.domains if other != domain]
    found = [evidence.resampled.changes([Step(alone(domain), alone(other), domain)]) for other in strangers]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.value) if known else None


def ratios(evidence: Evidence, seed: int) -> list[list[float]] | None:
    """Figure 2 in one seed: each expert's perplexity on each domain over that of the domain's own expert."""
    losses, domains = evidence.measured.losses, evidence.subject.domains
    if any((alone(expert), seed, domain) not in losses for expert in domains for domain in domains):
        return None
    table = [[losses[alone(expert), seed, domain].perplexity for domain in domains] for expert in domains]
    return [[cell / table[place][place] for place, cell in enumerate(row)] for row in table]


def _affinity(evidence: Evidence) -> Verdict:
    from engine.text.overlap import correlation

    domains, overlap = evidence.subject.domains, evidence.overlap
    tables = [table for seed in evidence.resampled.seeds if (table := ratios(evidence, seed))]
    if not tables:
        return untestable(AFFINITY)
    if overlap is None or len(domains) < 3:
        return untestable(AFFINITY, "It needs at least three domains and their measured overlap.")
    shared = [[1.0 if one == other else overlap[one, other] for other in domains] for one in domains]
    away = [(i, j) for i in range(len(domains)) for j in range(len(domains)) if i != j]
    affinity = [[-table[i][j] for i, j in away] for table in tables]
    found = correlated(affinity, [shared[i][j] for i, j in away])
    as_printed = correlation(np.mean(tables, axis=0), shared, with_homes=True)
    numbers = f"r = {as_printed.r:.2f}, t = {as_printed.t:.2f}, p = {as_printed.p:.3f}"
    ours = f"with the diagonal, as the paper counts: {numbers}"
    return is_above(AFFINITY, found, ours=ours, unit=f"r over {len(away)} cells without the diagonal")


# figures 4, 7 and 8 -------------------------------------------------------------------------------


def _known(evidence: Evidence) -> Verdict:
    """The narrowest lead of the own expert's posterior over the next best, over the blocks of held-out text."""
    domains = evidence.subject.domains
    beliefs = {domain: _beliefs(evidence, domain) for domain in domains}
    if len(domains) < 2 or not all(beliefs.values()):
        return untestable(KNOWN)
    margins = {domain: [_margin(one, domains.index(domain)) for one in found] for domain, found in beliefs.items()}
    estimates = [_mean(found) for found in margins.values()]
    updated = sum(all(_leads_at_end(one, domains.index(d)) for one in found) for d, found in beliefs.items())
    ahead = sum(one.low > 0 for one in estimates)
    ours = f"{ahead} of {len(domains)} domains; {updated} by the updating prior at the end; the narrowest lead is shown"
    return is_above(KNOWN, min(estimates, key=lambda one: one.low), ours=ours, unit="posterior against the next best")


def _beliefs(evidence: Evidence, domain: str) -> list[Belief]:
    found = evidence.measured.beliefs
    return [found[seed, domain] for seed in range(evidence.subject.seeds) if (seed, domain) in found]


def _margin(belief: Belief, own: int) -> Floats:
    """The own expert's posterior in each block less that of the expert that is next best on average."""
    others = np.delete(belief.posterior_EN, own, axis=0)
    return np.asarray(belief.posterior_EN[own] - others[others.mean(1).argmax()])


def _leads_at_end(belief: Belief, own: int) -> bool:
    return int(belief.updating_EN[:, -1].argmax()) == own


def _mean(series: Sequence[Floats]) -> Estimate:
    points = tuple(float(one.mean()) for one in series)
    return Estimate(float(np.mean(points)), *mean_interval(series), points)


def settled_after(posterior_EN: Floats) -> int:
    """The number of blocks after which the mean posterior so far stays near its last value."""
    means_EN = posterior_EN.cumsum(1) / np.arange(1, posterior_EN.shape[1] + 1)
    moving = (np.abs(means_EN - means_EN[:, -1:]).max(0) > SETTLED).nonzero()[0]
    return int(moving[-1]) + 2 if len(moving) else 1


def _stable(evidence: Evidence) -> Verdict:
    if evidence.subject.size.prior_blocks < _PAPER_BLOCKS:
        return untestable(STABLE, f"It needs {_PAPER_BLOCKS} blocks of held-out text in each domain.")
    found = [[settled_after(one.posterior_EN) for one in _beliefs(evidence, d)] for d in evidence.subject.everywhere]
    found = [points for points in found if points]
    if len(found) < 2:
        return untestable(STABLE)
    means = np.array([np.mean(points) for points in found])
    by_seed = tuple(float(np.mean([points[s] for points in found])) for s in range(min(map(len, found))))
    estimate = Estimate(float(means.mean()), *mean_interval([means]), by_seed)
    early = sum(means <= STABLE_AFTER)
    ours = f"after {STABLE_AFTER} blocks in {early} of {len(means)} domains; the mean over domains is shown"
    return is_below(STABLE, estimate, STABLE_AFTER, ours=ours, unit=f"blocks of {_PAPER_BLOCKS}")
