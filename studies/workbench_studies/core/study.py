"""A paper as data: its claims with their tests, and its sentences, from the `study.toml` in its folder.

A claim names the test that judges it and what the test is about. Its words may name values of a replication in braces.
A sentence of the paper names the claims that judge it by their ids, or says why nothing can. Quotations are short, in
the paper's own words; a sentence that the paper repeats in the same sense stands once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from workbench_studies.core.verdicts import Claim, Verdict, untestable

Options = Mapping[str, Any]
_VALUE = re.compile(r"\\\{.*?\\\}")  # the name of a value in escaped words


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
    is_read: bool = False  # whether it depends on how a posterior is read
    implied: Implied | None = None
    options: Options = field(default_factory=dict)

    def states(self, row: Mapping[str, Any]) -> bool:
        """Whether a claim of a report is this one, whatever values stand in its words."""
        texts = ((self.where, row["where"]), (self.sentence, row["sentence"]))
        return all(re.fullmatch(_VALUE.sub(".+", re.escape(own)), text) for own, text in texts)

    def claim(self, words: Mapping[str, object]) -> Claim:
        """The claim of a replication, with these values in the place of their names."""
        words = {**self.options, **words}
        texts = (self.where, self.sentence, self.paper, self.weaker, self.model)
        where, sentence, paper, weaker, model = (one.format_map(words) for one in texts)
        return Claim(where, sentence, paper, weaker, self.topics, model, self.id)


class Case(Protocol):
    """What the names in a claim stand for in one replication."""

    @property
    def evidence(self) -> Any:
        """The measurements."""

    @property
    def words(self) -> Mapping[str, object]:
        """The values in a claim's words."""

    def system(self, name: str) -> Hashable:
        """A system by its name in a claim."""

    def texts(self, name: str) -> Sequence[str]:
        """Domains by their name in a claim."""


AnyCase = TypeVar("AnyCase", bound=Case)
Test = Callable[[AnyCase, Claim, Options], Verdict]


@dataclass(frozen=True)
class Study:
    """The claims and sentences of a paper, in its order."""

    claims: tuple[DeclaredClaim, ...]
    sentences: tuple[Sentence, ...]

    def declared(self, row: Mapping[str, Any]) -> DeclaredClaim | None:
        """How a claim of a report is declared; None for sentences and for claims of an earlier version."""
        return next((one for one in self.claims if one.states(row)), None)

    def id_of(self, row: Mapping[str, Any]) -> str:
        """The id of a claim of a report; empty for one that is not declared."""
        declared = self.declared(row)
        return declared.id if declared else ""

    def judge(
        self,
        tests: Mapping[str, Test[AnyCase]],
        cases: Callable[[str], Sequence[AnyCase]],
        is_chosen: Callable[[DeclaredClaim], bool] = lambda _: True,
    ) -> list[Verdict]:
        """The verdict on each claim in each of the cases that it is stated for."""
        return [
            tests[one.test](case, one.claim(case.words), one.options)
            for one in filter(is_chosen, self.claims)
            for case in cases(one.each)
        ]

    def untestable(self) -> list[Verdict]:
        """The verdicts on sentences that no arm of a replication decides."""
        return [
            untestable(Claim(one.where, f"“{one.quote}”", one.printed or "—", id=one.key), one.why)
            for one in self.sentences
            if one.why
        ]

    def listed(self, verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
        """Every sentence with the marks of the claims that judge it, or why there are none."""
        return [{**asdict(one), "judged_by": list(_marks(one, verdicts))} for one in self.sentences]


def _marks(sentence: Sentence, verdicts: Sequence[Verdict]) -> Iterator[dict[str, str]]:
    for verdict in verdicts:
        if verdict.claim.id in sentence.judged_by:
            yield {"where": verdict.claim.where, "sentence": verdict.claim.sentence, "mark": verdict.mark}


def read_study(module: str) -> Study:
    """The study of the paper whose module this is. Sentences may share a reason, by its name in `reasons`."""
    tables = tomllib.loads(Path(module).with_name("study.toml").read_text(encoding="utf-8"))
    reasons = tables.get("reasons", {})
    sentences = ({**one, "why": reasons.get(one.get("why"), one.get("why", ""))} for one in tables["sentence"])
    return Study(
        tuple(map(_declared, tables.get("claim", ()))),
        tuple(Sentence(**{**one, "judged_by": tuple(one.get("judged_by", ()))}) for one in sentences),
    )


def read_texts(module: str) -> Mapping[str, str]:
    """The paragraphs of a report by their names, from the `texts.toml` next to a module."""
    return tomllib.loads(Path(module).with_name("texts.toml").read_text(encoding="utf-8"))


_FIELDS = {one.name for one in fields(DeclaredClaim)} - {"options"}


def _declared(table: Mapping[str, Any]) -> DeclaredClaim:
    own = {name: value for name, value in table.items() if name in _FIELDS}
    options = {name: value for name, value in table.items() if name not in _FIELDS}
    implied = Implied(**own["implied"]) if "implied" in own else None
    return DeclaredClaim(**{**own, "topics": tuple(own.get("topics", ())), "implied": implied}, options=options)
