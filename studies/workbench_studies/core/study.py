"""A paper as data: its claims with their tests, and its sentences, from the `study.toml` in its folder.

A claim names the test that judges it and what the test is about. Claims that differ by a few values are the `rows` of
one table. `{name}` in the words of a claim is filled from the file's `words`, if one of its options has this name and
a value listed there, else from the replication. A sentence of the paper names the claims that judge it by their ids, or
says why nothing can. Quotations are short, in the paper's own words; a sentence that the paper repeats in the same
sense stands once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from workbench_studies.core.measurements import Measurements
from workbench_studies.core.sizes import read_table
from workbench_studies.core.verdicts import Claim, Verdict, untestable

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
        """Whether a claim of a report is this one, whatever values stand in its words."""
        texts = ((self.where, row["where"]), (self.sentence, row["sentence"]))
        return all(re.fullmatch(".*".join(map(re.escape, _NAME.split(own)[::2])), text) for own, text in texts)

    def claim(self, words: Mapping[str, object]) -> Claim:
        """The claim of a replication, with these values in the place of their names."""
        named = {
            name: words.get(option, option) if isinstance(option, str) else option
            for name, option in self.options.items()
        }
        words = {**named, **words}
        filled = {name: getattr(self, name).format_map(words) for name in _FILLED}
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

    def id_of(self, row: Mapping[str, Any]) -> str:
        """The id of a claim of a report; empty for one that is not declared."""
        declared = self.find_claim(row)
        return declared.id if declared else ""

    def judge(
        self,
        tests: Mapping[str, Test],
        cases: Mapping[str, Sequence[Case[Any]]],
        is_chosen: Callable[[DeclaredClaim], bool] = lambda _: True,
    ) -> list[Verdict]:
        """The verdict on each claim in each of the cases that it is stated for."""
        verdicts = []
        for one in filter(is_chosen, self.claims):
            for case in cases[one.each]:
                claim = one.claim(case.words)
                why = self.reasons[one.needs].format_map(case.words) if one.needs in case.lacks else ""
                verdicts.append(untestable(claim, why) if why else tests[one.test](case, claim, one.options))
        return verdicts

    def untestable(self) -> list[Verdict]:
        """The verdicts on sentences that no arm of a replication decides."""
        return [
            untestable(Claim(one.where, f"“{one.quote}”", one.printed or "—", id=one.key), one.why)
            for one in self.sentences
            if one.why
        ]

    def list_sentences(self, verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
        """Every sentence with the marks of the claims that judge it, or why there are none."""
        rows = [(verdict.claim.id, verdict.claim.where, verdict.claim.sentence, verdict.mark) for verdict in verdicts]
        return [
            asdict(one)
            | {
                "judged_by": [
                    {"where": where, "sentence": sentence, "mark": mark}
                    for identity, where, sentence, mark in rows
                    if identity in one.judged_by
                ]
            }
            for one in self.sentences
        ]


def read_study(module: str) -> Study:
    """The study of the paper whose module this is. Sentences may share a reason, by its name in `reasons`."""
    tables = read_table(module, "study")
    reasons, words = tables.get("reasons", {}), tables.get("words", {})
    claims = (table | row for table in tables.get("claim", ()) for row in table.pop("rows", ({},)))
    sentences = ({**one, "why": reasons.get(one.get("why"), one.get("why", ""))} for one in tables["sentence"])
    return Study(
        tuple(_read_claim(claim, words) for claim in claims),
        tuple(Sentence(**{**sentence, "judged_by": tuple(sentence.get("judged_by", ()))}) for sentence in sentences),
        reasons,
    )


_FIELDS = {one.name for one in fields(DeclaredClaim)} - {"options"}


def _read_claim(table: Mapping[str, Any], words: Mapping[str, str]) -> DeclaredClaim:
    own = {name: value for name, value in table.items() if name in _FIELDS}
    options = {name: value for name, value in table.items() if name not in _FIELDS}
    known = {name: words[value] for name, value in options.items() if isinstance(value, str) and value in words}
    own["sentence"] = _NAME.sub(lambda match: known.get(match[1], match[0]), own["sentence"])
    implied = Implied(**own["implied"]) if "implied" in own else None
    identity = own["id"].format_map(options)
    return DeclaredClaim(
        **{**own, "id": identity, "topics": tuple(own.get("topics", ())), "implied": implied}, options=options
    )
