"""The tests that most claims share, by perplexity."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from engine.statistics.bootstrap import Change
from engine.statistics.estimates import Estimate, share
from workbench_studies.core.study import Case, Options, Test
from workbench_studies.core.verdicts import Claim, Verdict, is_above, is_below, is_within, untestable


def has_less(case: Case, claim: Claim, options: Options) -> Verdict:
    """One system has less perplexity than another, averaged over domains."""
    lower, higher, domains = _pair(case, options)
    difference = case.evidence.resampled.difference(lower, higher, domains)
    return is_below(claim, difference, ours=case.evidence.against(lower, higher, domains), unit="perplexity")


def rises_less(case: Case, claim: Claim, options: Options) -> Verdict:
    """From one system to another perplexity changes by less than a border in %, averaged over domains."""
    own, other, domains = _pair(case, options)
    changes = case.evidence.resampled.changes([Change(own, other, domain) for domain in domains])
    return is_below(claim, changes, options.get("border", 0.0), unit="%")


def is_alike(case: Case, claim: Claim, options: Options) -> Verdict:
    """The change from one system to another is within a border in %, whichever way."""
    own, other, domains = _pair(case, options)
    changes = case.evidence.resampled.changes([Change(own, other, domain) for domain in domains])
    return is_within(claim, changes, options["border"], unit="%")


def has_less_on_each(case: Case, claim: Claim, options: Options) -> Verdict:
    """On every domain: the least certain one is judged."""
    lower, higher, domains = _pair(case, options)
    border = options.get("border", 0.0)
    known = changes_by_domain(case, lower, higher, domains)
    if len(known) < len(domains) or not known:
        return untestable(claim)
    least = max(known, key=lambda domain: known[domain].high)
    ahead = sum(one.high < border for one in known.values())
    ours = f"{ahead} of {len(known)} domains; the least certain is shown: {least}"
    return is_below(claim, known[least], border, ours=ours, unit="%")


def has_less_on_most(case: Case, claim: Claim, options: Options) -> Verdict:
    """On more than half of the domains, which are the sample."""
    lower, higher, domains = _pair(case, options)
    known = changes_by_domain(case, lower, higher, domains)
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


def lead_grows(case: Case, claim: Claim, options: Options) -> Verdict:
    """From the first of four systems to the second it falls by more than from the third to the fourth."""
    systems = [case.system(one) for one in options["leads"]]
    estimate = case.evidence.resampled.estimate(
        systems, case.texts("training"), lambda one, two, three, four: (one - two) - (three - four)
    )
    return is_above(claim, estimate, unit="perplexity")


def _pair(case: Case, options: Options) -> tuple[Hashable, Hashable, Sequence[str]]:
    """The two systems that a claim compares, and the domains on which it does."""
    return case.system(options["lower"]), case.system(options["higher"]), case.texts(options.get("on", "training"))


def changes_by_domain(case: Case, own: Hashable, other: Hashable, domains: Iterable[str]) -> Mapping[str, Estimate]:
    """The change from one system to another on each domain where both were scored."""
    changes = {domain: case.evidence.resampled.changes([Change(own, other, domain)]) for domain in domains}
    return {domain: one for domain, one in changes.items() if one is not None}


SHAPES: Mapping[str, Test[Any]] = {
    "less": has_less,
    "rises-less": rises_less,
    "alike": is_alike,
    "less-on-each": has_less_on_each,
    "less-on-most": has_less_on_most,
    "lead-grows": lead_grows,
}
