"""A paper as data: its claims with their tests, and its sentences, from the `study.toml` in its folder.

A claim names the test that judges it and what the test is about. Claims that differ by a few values are the `rows` of
one table. `{name}` in the words of a claim is filled from the file's `words`, if one of its options has this name and
a value listed there, else from the replication. A sentence of the paper names the claims that judge it by their ids, or
says why nothing can. Quotations are short, in the paper's own words; a sentence that the paper repeats in the same
sense stands once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from engine.statistics.estimates import Estimate
from workbench_studies.core.averages import share
from workbench_studies.core.measurements import Measurements
from workbench_studies.core.spec import read_table
from workbench_studies.core.verdicts import Claim, Verdict, is_above, is_below, is_within, on_the_floor, untestable

Options = Mapping[str, Any]
_NAME = re.compile(r"\{(.*?)\}")  # of a value in words
_FILLED = ("where", "sentence", "paper", "weaker", "model")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paper. `judged_by` holds the ids of the claims that judge it."""

    key: str
    where: str  # section, table or figure
    quote: str
    judged_by: tuple[str, ...] = ()
    why: str = ""  # it cannot be tested here
    printed: str = ""  # the paper's numbers, if it cannot be tested


@dataclass(frozen=True)
class Implied:
    """Why a claim could not have come out otherwise."""

    why: str
    evidence: str = ""  # the only evidence of a posterior with which it is implied; empty: with any
    follows: str = ""  # the id of the claim it follows from where that holds; empty: from how the models are made


@dataclass(frozen=True)
class DeclaredClaim:
    """A claim as it is declared; `options` are those of its test."""

    id: str
    where: str  # table or figure
    sentence: str
    test: str
    paper: str = ""
    weaker: str = ""
    topics: tuple[str, ...] = ()
    model: str = ""
    each: str = ""  # what it is stated for one by one, such as each number of clusters; empty: it stands once
    needs: str = ""  # an arm that not every replication has; `reasons` says what is missing without it
    is_main: bool = False  # whether the paper is known for it
    is_read: bool = False  # whether it depends on how a posterior is read
    implied: Implied | None = None
    options: Options = field(default_factory=dict)

    def states(self, row: Mapping[str, Any]) -> bool:
        """Whether a claim of a report is this one, whatever values its sentence has."""
        texts = ((self.where, row["where"]), (self.sentence, row["sentence"]))
        return all(re.fullmatch(".*".join(map(re.escape, _NAME.split(own)[::2])), text) for own, text in texts)

    def claim(self, words: Mapping[str, object]) -> Claim:
        """The claim of a replication, with these values in the place of their names."""
        named = {name: words.get(one, one) if isinstance(one, str) else one for name, one in self.options.items()}
        filled = {name: getattr(self, name).format_map({**named, **words}) for name in _FILLED}
        return Claim(**filled, topics=self.topics, id=self.id)


AnyMeasurements = TypeVar("AnyMeasurements", bound=Measurements)


@dataclass(frozen=True)
class Case(Generic[AnyMeasurements]):
    """What the names in a claim stand for in one replication: systems, domains and words, and what it lacks."""

    measured: AnyMeasurements
    systems: Mapping[str, Any]
    texts: Mapping[str, Sequence[str]]
    words: Mapping[str, object] = field(default_factory=dict)
    lacks: Collection[str] = ()

    def also(self, systems: Mapping[str, Any], words: Mapping[str, object]) -> Case[AnyMeasurements]:
        """With further systems and words."""
        return replace(self, systems={**self.systems, **systems}, words={**self.words, **words})


Test = Callable[[Case[Any], Claim, Options], Verdict]


@dataclass(frozen=True)
class Study:
    """The claims and sentences of a paper, in its order, and the reasons why something cannot be tested."""

    claims: tuple[DeclaredClaim, ...]
    sentences: tuple[Sentence, ...]
    reasons: Mapping[str, str]

    def find_claim(self, row: Mapping[str, Any]) -> DeclaredClaim | None:
        """How a claim of a report is declared, the one with the most words of its own if several have its form.

        None for sentences and for claims of an earlier version.
        """
        stating = (one for one in self.claims if one.states(row))
        return max(stating, key=lambda one: len(_NAME.sub("", one.sentence)), default=None)

    def judge(
        self,
        tests: Mapping[str, Test],
        cases: Mapping[str, Sequence[Case[Any]]],
        is_chosen: Callable[[DeclaredClaim], bool] | None = None,
    ) -> list[Verdict]:
        """The verdict on each claim in each of the cases that it is stated for.

        Where none are chosen, those on the sentences that no arm of a replication decides come last.
        """
        verdicts = []
        for one in filter(is_chosen, self.claims):
            for case in cases[one.each]:
                claim = one.claim(case.words)
                why = self.reasons[one.needs].format_map(case.words) if one.needs in case.lacks else ""
                verdicts.append(untestable(claim, why) if why else tests[one.test](case, claim, one.options))
        undecided = [one for one in self.sentences if one.why and is_chosen is None]
        claims = [Claim(one.where, f"“{one.quote}”", one.printed or "—", id=one.key) for one in undecided]
        return [*verdicts, *(untestable(claim, one.why) for claim, one in zip(claims, undecided, strict=True))]

    def list_sentences(self, verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
        """Every sentence with the marks of the claims that judge it, or why there are none."""
        rows = [
            (verdict.claim.id, {"where": verdict.claim.where, "sentence": verdict.claim.sentence, "mark": verdict.mark})
            for verdict in verdicts
        ]
        return [
            asdict(one) | {"judged_by": [row for identity, row in rows if identity in one.judged_by]}
            for one in self.sentences
        ]


def read_study(module: str) -> Study:
    """The study of the paper whose module this is. Sentences may share a reason, by its name in `reasons`."""
    tables = read_table(module, "study")
    reasons, words = tables.get("reasons", {}), tables.get("words", {})
    claims = [_declare(table | row, words) for table in tables.get("claim", ()) for row in table.pop("rows", ({},))]
    sentences = [{**one, "why": reasons.get(one.get("why"), one.get("why", ""))} for one in tables["sentence"]]
    return TypeAdapter(Study).validate_python({"claims": claims, "sentences": sentences, "reasons": reasons})


def _declare(table: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """A claim; values that are not fields of it are options of its test."""
    names = {one.name for one in fields(DeclaredClaim)}
    options = {name: value for name, value in table.items() if name not in names}
    known = {name: words[value] for name, value in options.items() if isinstance(value, str) and value in words}
    sentence = _NAME.sub(lambda match: known.get(match[1], match[0]), table["sentence"])
    return {
        **{name: value for name, value in table.items() if name in names},
        "id": table["id"].format_map(options),
        "sentence": sentence,
        "options": options,
    }


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
