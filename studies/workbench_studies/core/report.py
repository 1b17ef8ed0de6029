"""The sections of all reports, with text and tables: the same in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.statistics.estimates import LEVEL, NUM_DRAWS
from workbench_studies.core.spec import ENOUGH_DOCUMENTS, SMOKE, read_table
from workbench_studies.core.verdicts import (
    CONTRADICTED,
    ONE_SEED,
    UNDECIDED,
    UNTESTABLE,
    Findings,
    cautions,
    not_done,
    summary,
    todays_mark,
)

TEXTS = read_table(__file__, "texts")
Rows = Sequence[Mapping[str, Any]]
Claims = Sequence[Mapping[str, Any]]
Reasons = Callable[[Findings, Mapping[str, Any]], Iterable[str]]  # why a claim may have failed


@dataclass(frozen=True)
class Section:
    """A heading with its paragraphs, an optional table and the name of an optional chart.

    `text` stands for the chart where there are only characters.
    """

    title: str
    words: tuple[str, ...] = ()
    rows: Rows = ()
    chart: str = ""
    text: str = ""


@dataclass(frozen=True)
class Report:
    """A paper's report: what its `report.toml` declares, and what only code can say.

    Declared are titles, paragraphs, tables and charts. `{name}` in a paragraph is one of `values`, or of the findings;
    a paragraph may depend on a field of the budget (`if`), and a section on its rows, its paragraphs, or whether the
    findings have its table (`if_rows`, `if_words`, `if_table`). Rows that stand in no table have a place in
    them (`rows`), which may depend on another (`needs`), and `columns`: what each shows, and how (`change|interval`).
    """

    declared: Mapping[str, Any]
    reasons: Reasons
    values: Mapping[str, Callable[[Findings], object]] = field(default_factory=dict)
    rows: Mapping[str, Callable[[Findings], Rows]] = field(default_factory=dict)  # of tables that are not stored so
    shared: Callable[[Findings], Iterable[str]] = lambda _: ()  # reasons of several claims
    formats: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)  # of columns

    def sections(self, findings: Findings) -> list[Section]:
        """All sections of the report, in order."""
        words = {name: self._words(findings, name) for name in ("summary", "claims", "intervals", "trainings")}
        claims = " ".join([TEXTS["marks"], *words["claims"]])
        columns = {"job": "title", "state": "state", "seconds": "seconds", "tokens at most": "tokens"}
        jobs = [{name: job[column] for name, column in columns.items()} for job in findings["jobs"]]
        doubts = (_GUESSES, *_doubts(findings, self.reasons), *self.shared(findings))
        return [
            Section("Summary", tuple(_in_short(findings, headline(findings), *words["summary"]))),
            Section("Claims", (claims,), claim_rows(findings["claims"])),
            *self._sections(findings, "section"),
            Section("Claims that were not reproduced, and possible reasons", doubts),
            *self._sections(findings, "last_section"),
            Section("How intervals are computed", tuple(_intervals(findings, *words["intervals"])), findings["texts"]),
            Section("Machine, budget and time", tuple(_circumstances(findings, *words["trainings"])), jobs),
        ]

    def _sections(self, findings: Findings, kind: str) -> Iterator[Section]:
        for one in self.declared.get(kind, ()):
            rows = self._rows_of(findings, one)
            words = findings[one["listed"]] if "listed" in one else self._fill(findings, one.get("words", ()))
            has = {"if_rows": rows, "if_words": words, "if_table": one.get("table") in findings["tables"]}
            if all(has[needed] for needed in has if one.get(needed)):
                yield Section(one["title"], tuple(words), rows, one.get("chart", ""))

    def _rows_of(self, findings: Findings, section: Mapping[str, Any]) -> Rows:
        table = section.get("table", "")
        stored = _at(findings, section["rows"]) if "rows" in section else findings["tables"].get(table)
        rows: Rows = self.rows[table](findings) if table in self.rows else stored
        if not rows or not _at(findings, section.get("needs", "claims")):
            return []
        if "columns" not in section:
            return rows
        cells = {name: source.partition("|") for name, source in section["columns"].items()}
        return [{name: self._cell(row, *cell) for name, cell in cells.items()} for row in rows]

    def _cell(self, row: Mapping[str, Any], place: str, _: str, shape: str) -> object:
        value = _at(row, place)
        if shape == "interval":
            numbers = value if isinstance(value, Mapping) else {"value": value}
            return with_interval({**row, **numbers, "unit": ""})
        return value if not shape or value is None else {**_FORMATS, **self.formats}[shape](value)

    def _words(self, findings: Findings, name: str) -> tuple[str, ...]:
        return self._fill(findings, self.declared.get(name, ()))

    def _fill(self, findings: Findings, words: Iterable[str | Mapping[str, str]]) -> tuple[str, ...]:
        """Paragraphs with their values; those that come to nothing are left out."""
        values, budget = _Values(self, findings), findings["budget"]
        texts = [one if isinstance(one, str) else one["text"] if budget.get(one["if"]) else "" for one in words]
        return tuple(filled for text in texts if (filled := text.format_map(values)))


class _Values(dict[str, object]):
    """What the names in paragraphs stand for."""

    def __init__(self, report: Report, findings: Findings) -> None:
        super().__init__({**report.declared.get("texts", {}), **findings})
        self._values, self._findings = {**_TRAININGS, **report.values}, findings

    def __missing__(self, name: str) -> object:
        return self._values[name](self._findings)


def _at(values: Mapping[str, Any], place: str) -> Any:
    """What is at a place (`change.value`); None without it."""
    for name in place.split("."):
        values = values.get(name, {})
    return None if values == {} else values


def _in_short(findings: Findings, *words: str) -> Iterator[str]:
    """The summary: a warning for size “smoke”, the marks of claims, unfinished jobs, and later notes on the report."""
    if findings["size"] == SMOKE:
        yield TEXTS["smoke"]
    yield from (summary(findings), *cautions(findings), *words)
    if jobs := not_done(findings):
        names = ", ".join(f"{job['title']} ({job['state']})" for job in jobs[:_NAMED])
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        yield f"Not done when this report was written, so claims that need it are marked {UNTESTABLE}: {names}{more}."
    yield from findings.get("notes", ())  # a kept report may have some


_NAMED = 12


def _intervals(findings: Findings, *words: str) -> Iterator[str]:
    """How intervals are computed, and the number of documents behind them."""
    yield from (TEXTS["how"].format(draws=NUM_DRAWS, level=LEVEL), *words)
    rows, wanted = findings["texts"], findings["budget"]["prior_blocks"]
    novel = [row for row in _below(rows, "test documents", ENOUGH_DOCUMENTS) if row["text"] in findings["novel"]]
    if novel:
        named = ", ".join(f"{row['text']} ({row['test documents']})" for row in novel)
        yield f"Novel domains of which fewer than {ENOUGH_DOCUMENTS} test documents were read: {named}."
    for start, column, least, why in (
        ("Intervals over fewer than {} documents are too narrow", "test documents", _FEW, ""),
        ("Cached priors of fewer than {} blocks", "blocks behind a cached prior", wanted, _SHORT),
    ):
        if few := _below(rows, column, least):
            yield f"{start.format(least)}{why}: {', '.join(row['text'] for row in few)}."


_FEW = 5
_SHORT = ", because the text is too short"


def _below(rows: Rows, column: str, least: int) -> Rows:
    """The rows with some, but fewer than the least."""
    return [row for row in rows if (row[column] or least) < least]


# claims -------------------------------------------------------------------------------------------


def claim_rows(claims: Rows) -> Rows:
    """Claims as a table: the paper's number next to ours, the difference with its interval, the mark."""
    return [
        {
            "where": claim["where"],
            "claim": claim["sentence"],
            "paper": claim["paper"],
            "ours": claim["ours"] or "—",
            "difference [95 %]": with_interval(claim),
            "each seed": each_seed(claim["by_seed"]),
            "mark": format_marks(claim),
            "why": " ".join(filter(None, (claim["why"], describe_setting(claim)))),
        }
        for claim in claims
    ]


def describe_setting(claim: Mapping[str, Any]) -> str:
    """`Adapted at 0.5 of …`: a setting that is not the paper's, as a sentence; empty without."""
    setting = str(claim.get("setting", ""))
    return f"{setting[0].upper()}{setting[1:]}." if setting else ""


def format_marks(claim: Mapping[str, Any]) -> str:
    """`reproduced`, `reproduced (one seed)`, `undecided (prefix), reproduced (last_token)`.

    The last is of a claim that depends on how the posterior is read: by the paper's text, by its released code.
    """
    by_mark: dict[str, list[str]] = {}
    for evidence, mark in claim.get("by_evidence", {}).items():
        by_mark.setdefault(mark, []).append(evidence)
    words = [f"{mark} ({', '.join(evidence)})" for mark, evidence in by_mark.items()] or [str(claim["mark"])]
    return f"{', '.join(words)} ({ONE_SEED})" if claim.get("is_one_seed", False) else ", ".join(words)


def claim_name(claim: Mapping[str, Any]) -> str:
    """`Table 3: DEMix (naive) has less perplexity than Dense`."""
    return f"{claim['where']}: {claim['sentence']}"


def with_interval(claim: Mapping[str, Any]) -> str:
    """`-1.20 [-1.50, -0.90] perplexity`."""
    if claim["value"] is None:
        return "—"
    return f"{claim['value']:+.2f} [{claim['low']:+.2f}, {claim['high']:+.2f}] {claim['unit']}".strip()


def headline(findings: Findings) -> str:
    """The first claim with its numbers on test text, their interval and its mark."""
    claim = findings["claims"][0]
    numbers = f"{claim['ours']}, a difference of {with_interval(claim)}" if claim["value"] is not None else claim["why"]
    return f"{claim['where']}, {claim['sentence']}: {format_marks(claim)} ({numbers.removesuffix('.')})."


def each_seed(values: Sequence[float | None]) -> str:
    return ", ".join("—" if value is None else f"{value:+.2f}" for value in values) or "—"


_FORMATS: Mapping[str, Callable[[Any], str]] = {"seeds": each_seed, "number": "{:g}".format}


_GUESSES = "A reason names the arms that varied it. What begins with “Guess:” was varied by none, and may be wrong."


def _doubts(findings: Findings, reasons: Reasons) -> Iterator[str]:
    failed = not_reproduced(findings, reasons)
    if not failed:
        yield "Every claim that could be tested was reproduced."
    for claim, why in failed:
        name = f"**{claim['where']}: {claim['sentence']}**"
        yield " ".join([f"{name} (paper: {claim['paper']}). Measured: {with_interval(claim)}.", *why])


def not_reproduced(findings: Findings, reasons: Reasons) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Each claim that was tested and not reproduced, with possible reasons."""
    failed = [claim for claim in findings["claims"] if claim["mark"] in (CONTRADICTED, UNDECIDED)]
    return [(claim, [claim["why"], *reasons(findings, claim), *_too_little(findings, claim)]) for claim in failed]


def _too_little(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    is_about_text = claim.get("num_domains") is None
    if claim["mark"] == UNDECIDED and is_about_text and findings["seeds"] < 3:
        yield f"{count_seeds(findings)} and this much test text cannot resolve a difference of this size."


def join_names(names: Iterable[str]) -> str:
    """`1, 2 and 5`."""
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last


def count_seeds(findings: Findings) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{findings['seeds']} seed{'' if findings['seeds'] == 1 else 's'}"


def amount(tokens: int) -> str:
    """`3,840`, `1.02 M`."""
    return f"{tokens:,}" if tokens < 1_000_000 else f"{tokens / 1e6:,.2f} M"


# where it ran -------------------------------------------------------------------------------------


def _circumstances(findings: Findings, *words: str) -> Iterator[str]:
    """Machine, model and budget, what its jobs took, and what that excludes; `words` describe the trainings."""
    budget, blocks = findings["budget"], findings["budget"]["prior_blocks"]
    versions = ", ".join(f"{name} {number}" for name, number in findings["versions"].items())
    yield f"Machine: {findings['machine']}. Versions: {versions}."
    shape = ", ".join(f"{name} {value}" for name, value in budget["shape"].items())
    yield f"Model: {shape}, vocabulary {budget['vocab_size']:,}."
    yield from words
    text = f"Test text: at most {budget['test_tokens']:,} tokens of each domain, in blocks of {budget['block_size']}"
    yield text + (f"; cached priors from at most {blocks} blocks of development text." if blocks else ".")
    timed = [job for job in findings["jobs"] if job["seconds"]]
    own = [job["seconds"] for job in timed if job["is_own"]]
    others = len(timed) - len(own)
    more = f" {others} more belong to another replication and are not counted." if others else ""
    yield (
        f"The last attempts of its {len(own)} ended jobs took {sum(own) / 60:,.1f} min together; parallel jobs count "
        f"separately, and earlier attempts do not count.{more}"
    )


def _describe_training(findings: Findings, name: str) -> str:
    """The settings of a training that determine its result."""
    names = ("num_steps", "sequences_per_domain", "accumulate", "learning_rate", "clip", "precision")
    training = findings["budget"][name]
    return ", ".join(f"{name.removeprefix('num_').replace('_', ' ')} {training[name]}" for name in names)


_TRAININGS: Mapping[str, Callable[[Findings], object]] = {
    f"{name}_settings": partial(_describe_training, name=name) for name in ("training", "seeding", "adapting")
}


def matrix(corner: str, down: Iterable[str], across: Iterable[str], cells: Iterable[Sequence[object]]) -> Rows:
    """Cells as rows, each with its name in the column of the corner."""
    names = list(across)
    return [{corner: name, **dict(zip(names, row, strict=True))} for name, row in zip(down, cells, strict=False)]


def format_cell(value: object) -> str:
    """A value as the report prints it."""
    if value is None or value == "":
        return "—"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def compare(first: Findings, second: Findings) -> dict[str, Any]:
    """The claims that both reports have, by where they stand and what they say, and those that only one has."""
    ours, theirs = ({claim_name(one): one for one in of["claims"]} for of in (first, second))
    moves = [_move(claim, theirs[name]) for name, claim in ours.items() if name in theirs]
    return {
        "names": (first["name"], second["name"]),
        "papers": (first["paper"], second["paper"]),
        "flipped": [move for move in moves if len(set(move["marks"])) > 1],
        "same": [move for move in moves if len(set(move["marks"])) == 1],
        "only_first": [name for name in ours if name not in theirs],
        "only_second": [name for name in theirs if name not in ours],
    }


def _move(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """One claim in two reports; `moved` is the second value less the first, in the claim's unit."""
    before, after = one["value"], other["value"]
    is_measured = before is not None and after is not None
    return {
        "where": one["where"],
        "sentence": one["sentence"],
        "marks": tuple(format_marks({**claim, "mark": todays_mark(claim)}) for claim in (one, other)),
        "values": (before, after),
        "moved": after - before if is_measured else None,
        "unit": one["unit"],
        "is_outside": is_measured and not one["low"] <= after <= one["high"],  # the second of the first interval
    }


def summarize_comparison(comparison: Mapping[str, Any]) -> str:
    """`2 of 33 marks differ; 5 of 25 estimates moved out of their first interval.`"""
    moves = [*comparison["flipped"], *comparison["same"]]
    measured = [move for move in moves if move["moved"] is not None]
    sentence = f"{len(comparison['flipped'])} of {len(moves)} marks differ; "
    sentence += f"{sum(one['is_outside'] for one in measured)} of {len(measured)} estimates moved out of their first "
    sentence += "interval."
    if single := len(comparison["only_first"]) + len(comparison["only_second"]):
        sentence += f" {single} claim{'' if single == 1 else 's'} in one report only."
    return sentence
