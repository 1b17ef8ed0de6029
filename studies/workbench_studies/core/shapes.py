"""The tests that most claims share, by perplexity."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from engine.statistics.estimates import Estimate
from workbench_studies.core.averages import share
from workbench_studies.core.measurements import Measurements
from workbench_studies.core.study import Case, Options, Test
from workbench_studies.core.verdicts import Claim, Verdict, is_above, is_below, is_within, on_the_floor, untestable


def has_less(case: Case[Any], claim: Claim, options: Options) -> Verdict:
    """One system has less than another, averaged over domains; `about` ends what is said of ours."""
    measured, (lower, higher, domains) = case.measured, systems_of(case, options)
    ours = measured.against(lower, higher, domains) + options.get("about", "").format_map(case.words)
    return is_below(claim, measured.difference(lower, higher, domains), ours=ours, unit=measured.unit)


def has_more(case: Case[Any], claim: Claim, options: Options) -> Verdict:
    """The same, stated of the system with more; with less by at most `border`, if that is negative."""
    measured, (lower, higher, domains) = case.measured, systems_of(case, options)
    shown = {"ours": measured.against(higher, lower, domains), "unit": measured.unit}
    verdict = is_above(claim, measured.difference(higher, lower, domains), options.get("border", 0.0), **shown)
    return on_the_floor(verdict, measured.floor([higher, lower], domains))


def rises_less(case: Case[Any], claim: Claim, options: Options) -> Verdict:
    """From one system to another perplexity changes by less than a border in %, averaged over domains."""
    return is_below(claim, case.measured.change(*systems_of(case, options)), options.get("border", 0.0), unit="%")


def is_alike(case: Case[Any], claim: Claim, options: Options) -> Verdict:
    """The change from one system to another is within a border in %, whichever way."""
    return is_within(claim, case.measured.change(*systems_of(case, options)), options["border"], unit="%")


def has_less_on_each(case: Case[Any], claim: Claim, options: Options) -> Verdict:
    """On every domain: the least certain one is judged."""
    lower, higher, domains = systems_of(case, options)
    border = options.get("border", 0.0)
    known = case.measured.change_by_domain(lower, higher, domains)
    if len(known) < len(domains) or not known:
        return untestable(claim)
    least = max(known, key=lambda domain: known[domain].high)
    ahead = sum(one.high < border for one in known.values())
    ours = f"{ahead} of {len(known)} domains; the least certain is shown: {least}"
    return is_below(claim, known[least], border, ours=ours, unit="%")


def has_less_on_most(case: Case[Any], claim: Claim, options: Options) -> Verdict:
    """On more than half of the domains, which are the sample."""
    lower, higher, domains = systems_of(case, options)
    known = case.measured.change_by_domain(lower, higher, domains)
    if len(known) < len(domains):
        return untestable(claim)
    return holds_on_most(claim, [[one] for one in known.values()], 0.0)


def holds_on_most(claim: Claim, changes: Sequence[Sequence[Estimate]], border: float) -> Verdict:
    """On more than half of the domains all changes are below a border."""
    seeds = range(min(len(one.by_seed) for row in changes for one in row))
    holds = [[all(one.by_seed[seed] < border for one in row) for row in changes] for seed in seeds]
    good = sum(all(one.value < border for one in row) for row in changes)
    ours = f"{good} of {len(changes)} domains"
    return is_above(claim, share(holds), 0.5, ours=ours, unit="of the domains", num_domains=len(changes))


def lead_grows(case: Case[Any], claim: Claim, options: Options) -> Verdict:
    """From the second of four systems to the first it rises by more than from the fourth to the third."""
    systems, domains = [case.systems[one] for one in options["leads"]], case.texts[options.get("on", "training")]
    estimate = case.measured.estimate(systems, domains, lambda one, two, three, four: (one - two) - (three - four))
    verdict = is_above(claim, estimate, unit=case.measured.unit)
    return on_the_floor(verdict, case.measured.floor(systems, domains))


def leads_everywhere(
    measured: Measurements, claim: Claim, pairs: Iterable[tuple[Hashable, Sequence[Hashable], str]], places: str
) -> Verdict:
    """Each system against all others on its domain: the least certain lead of all is judged; None is unknown."""
    leads = [_least_lead(measured, own, others, domain) for own, others, domain in pairs]
    known = [lead for lead in leads if lead is not None]
    if not leads or len(known) < len(leads):
        return untestable(claim)
    ahead = sum(lead.high < 0 for lead in known)
    ours = f"{ahead} of {len(known)} {places}; the least certain lead is shown"
    return is_below(claim, max(known, key=lambda lead: lead.high), ours=ours, unit="% against another expert")


def _least_lead(measured: Measurements, own: Hashable, others: Sequence[Hashable], domain: str) -> Estimate | None:
    """How much less perplexity a system has than the one against which that is least certain, in %."""
    changes = [measured.change(own, one, [domain]) for one in others]
    known = [change for change in changes if change is not None]
    return max(known, key=lambda one: one.high) if known and len(known) == len(changes) else None


def ratios_of(
    measured: Measurements, seed: int, systems: Sequence[Hashable], domains: Sequence[str]
) -> list[list[float]] | None:
    """The perplexity of each system [row] on each domain over that of the domain's own; None if one is missing."""
    losses = measured.losses
    if any((system, seed, domain) not in losses for system in systems for domain in domains):
        return None
    table = [[losses[system, seed, domain].value for domain in domains] for system in systems]
    return [[cell / table[place][place] for place, cell in enumerate(row)] for row in table]


def systems_of(case: Case[Any], options: Options) -> tuple[Any, Any, Sequence[str]]:
    """The two systems that a claim compares, and the domains on which it does."""
    lower, higher = (case.systems[options[one]] for one in ("lower", "higher"))
    return lower, higher, case.texts[options.get("on", "training")]


SHAPES: Mapping[str, Test] = {
    "less": has_less,
    "more": has_more,
    "rises-less": rises_less,
    "alike": is_alike,
    "less-on-each": has_less_on_each,
    "less-on-most": has_less_on_most,
    "lead-grows": lead_grows,
}
