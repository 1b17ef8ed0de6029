"""The sections of all reports, with text and tables: the same in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.statistics.estimates import LEVEL, NUM_DRAWS
from workbench_studies.core.findings import Findings, cautions, not_done, summary
from workbench_studies.core.sizes import ENOUGH_DOCUMENTS, SMOKE, read_table
from workbench_studies.core.verdicts import CONTRADICTED, ONE_SEED, UNDECIDED, UNTESTABLE

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
class Cell:
    """A cell that leads to a section (`link`, its title), can be linked to (`anchor`), or quotes text as it is."""

    text: str
    link: str = ""
    anchor: str = ""
    is_quoted: bool = False


@dataclass(frozen=True)
class Report:
    """A paper's report: what its `report.toml` declares, and what only code can say.

    Declared are titles, paragraphs, tables and charts. `{name}` in a paragraph is one of `values`, or of the findings;
    a paragraph may depend on a field of the budget (`if`), and a section on its rows, its paragraphs, or whether the
    findings have its table (`if_rows`, `if_words`, `if_table`). Rows that are no table of the findings have a place in
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
        return [
            in_short(findings, headline(findings), *self._words(findings, "summary")),
            the_claims(findings, *self._words(findings, "claims")),
            *self._sections(findings, "section"),
            failed(findings, self.reasons, *self.shared(findings)),
            *self._sections(findings, "last_section"),
            intervals(findings, *self._words(findings, "intervals")),
            circumstances(findings, *self._words(findings, "trainings")),
        ]

    def _sections(self, findings: Findings, kind: str) -> Iterator[Section]:
        for one in self.declared.get(kind, ()):
            table = one.get("table", "")
            rows = self.rows[table](findings) if table in self.rows else self._stored(findings, one)
            words = findings[one["listed"]] if "listed" in one else self._filled(findings, one.get("words", ()))
            has = {"if_rows": rows, "if_words": words, "if_table": table in findings["tables"]}
            if all(has[needed] for needed in has if one.get(needed)):
                yield Section(one["title"], tuple(words), rows, one.get("chart", ""))

    def _stored(self, findings: Findings, section: Mapping[str, Any]) -> Rows:
        rows = _at(findings, section["rows"]) if "rows" in section else findings["tables"].get(section.get("table"))
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
        return self._filled(findings, self.declared.get(name, ()))

    def _filled(self, findings: Findings, words: Iterable[str | Mapping[str, str]]) -> tuple[str, ...]:
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


def in_short(findings: Findings, *words: str) -> Section:
    """The summary: a warning for size “smoke”, the marks of claims, unfinished jobs, and later notes on the report."""
    warnings = [TEXTS["smoke"]] if findings["size"] == SMOKE else []
    notes = findings.get("notes", ())  # a kept report may have some
    return Section("Summary", (*warnings, summary(findings), *cautions(findings), *words, *_missing(findings), *notes))


def the_claims(findings: Findings, words: str) -> Section:
    """Every claim with its mark; `words` say which of the paper's numbers are compared."""
    return Section("Claims", (f"{TEXTS['marks']} {words}",), claim_rows(findings["claims"]))


def intervals(findings: Findings, *words: str) -> Section:
    """How intervals are computed, and the number of documents behind them."""
    wanted = findings["budget"]["prior_blocks"]
    few = [row["text"] for row in findings["texts"] if (row["test documents"] or _FEW) < _FEW]
    short = [row["text"] for row in findings["texts"] if (row["blocks behind a cached prior"] or wanted) < wanted]
    novel = [
        f"{row['text']} ({row['test documents']})"
        for row in findings["texts"]
        if row["text"] in findings["novel"] and (row["test documents"] or ENOUGH_DOCUMENTS) < ENOUGH_DOCUMENTS
    ]
    summary_texts = (
        (f"Novel domains of which fewer than {ENOUGH_DOCUMENTS} test documents were read: {', '.join(novel)}.", novel),
        (f"Intervals over fewer than {_FEW} documents are too narrow: {', '.join(few)}.", few),
        (f"Cached priors of fewer than {wanted} blocks, because the text is too short: {', '.join(short)}.", short),
    )
    how = TEXTS["how"].format(draws=NUM_DRAWS, level=LEVEL)
    sentences = (how, *words, *(sentence for sentence, domains in summary_texts if domains))
    return Section("How intervals are computed", sentences, findings["texts"])


_FEW = 5


def _missing(findings: Findings) -> Iterator[str]:
    if jobs := not_done(findings):
        names = ", ".join(f"{job['title']} ({job['state']})" for job in jobs[:_NAMED])
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        yield f"Not done when this report was written, so claims that need it are marked {UNTESTABLE}: {names}{more}."


_NAMED = 12


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
            "mark": mark_words(claim),
            "why": " ".join(filter(None, (claim["why"], setting_words(claim)))),
        }
        for claim in claims
    ]


def setting_words(claim: Mapping[str, Any]) -> str:
    """`Adapted at 0.5 of …`: a setting that is not the paper's, as a sentence; empty without."""
    setting = str(claim.get("setting", ""))
    return f"{setting[0].upper()}{setting[1:]}." if setting else ""


def mark_words(claim: Mapping[str, Any]) -> str:
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
    return f"{claim['where']}, {claim['sentence']}: {mark_words(claim)} ({numbers.removesuffix('.')})."


def each_seed(values: Sequence[float | None]) -> str:
    return ", ".join("—" if one is None else f"{one:+.2f}" for one in values) or "—"


_FORMATS: Mapping[str, Callable[[Any], str]] = {"seeds": each_seed, "number": "{:g}".format}


def failed(findings: Findings, reasons: Reasons, *shared: str) -> Section:
    """The claims that were tested and not reproduced, with possible reasons; `shared` are those of several claims."""
    words = (_GUESSES, *_doubts(findings, reasons), *shared)
    return Section("Claims that were not reproduced, and possible reasons", words)


_GUESSES = "A reason names the arms that varied it. What begins with “Guess:” was varied by none, and may be wrong."


def _doubts(findings: Findings, reasons: Reasons) -> Iterator[str]:
    failed = not_reproduced(findings, reasons)
    if not failed:
        yield "Every claim that could be tested was reproduced."
    for claim, why in failed:
        summary_texts = (
            f"**{claim['where']}: {claim['sentence']}** (paper: {claim['paper']}). Measured: {with_interval(claim)}."
        )
        yield " ".join([summary_texts, *why])


def not_reproduced(findings: Findings, reasons: Reasons) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Each claim that was tested and not reproduced, with possible reasons."""
    failed = [claim for claim in findings["claims"] if claim["mark"] in (CONTRADICTED, UNDECIDED)]
    return [(claim, [claim["why"], *reasons(findings, claim), *_too_little(findings, claim)]) for claim in failed]


def _too_little(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    is_about_text = claim.get("num_domains") is None
    if claim["mark"] == UNDECIDED and is_about_text and findings["seeds"] < 3:
        yield f"{seeds_words(findings)} and this much test text cannot resolve a difference of this size."


def seeds_words(findings: Findings) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{findings['seeds']} seed{'' if findings['seeds'] == 1 else 's'}"


def amount(tokens: int) -> str:
    """`3,840`, `1.02 M`."""
    return f"{tokens:,}" if tokens < 1_000_000 else f"{tokens / 1e6:,.2f} M"


# where it ran -------------------------------------------------------------------------------------


def circumstances(findings: Findings, *words: str) -> Section:
    """Machine, model, budget and jobs; `words` describe the trainings."""
    budget = findings["budget"]
    versions = ", ".join(f"{name} {number}" for name, number in findings["versions"].items())
    shape = ", ".join(f"{name} {value}" for name, value in budget["shape"].items())
    summary_texts = (
        f"Machine: {findings['machine']}. Versions: {versions}.",
        f"Model: {shape}, vocabulary {budget['vocab_size']:,}.",
        *words,
        f"Test text: at most {budget['test_tokens']:,} tokens of each domain, in blocks of {budget['block_size']}"
        f"{_PRIORS.format(budget['prior_blocks']) if budget['prior_blocks'] else ''}.",
        _time_words(findings),
    )
    return Section("Machine, budget and time", summary_texts, job_rows(findings))


_PRIORS = "; cached priors from at most {} blocks of development text"


def _describe_training(findings: Findings, name: str) -> str:
    """The settings of a training that determine its result."""
    names = ("num_steps", "sequences_per_domain", "accumulate", "learning_rate", "clip", "precision")
    training = findings["budget"][name]
    return ", ".join(f"{name.removeprefix('num_').replace('_', ' ')} {training[name]}" for name in names)


_TRAININGS: Mapping[str, Callable[[Findings], object]] = {
    f"{name}_settings": partial(_describe_training, name=name) for name in ("training", "seeding", "adapting")
}


def _time_words(findings: Findings) -> str:
    """The duration of its jobs, and what it excludes."""
    own = [job for job in findings["jobs"] if job["is_own"] and job["seconds"]]
    summary_texts = (
        f"The last attempts of its {len(own)} ended jobs took {sum(job['seconds'] for job in own) / 60:,.1f} min "
        "together; parallel jobs count separately, and earlier attempts do not count."
    )
    others = sum(not job["is_own"] for job in findings["jobs"] if job["seconds"])
    return summary_texts + (f" {others} more belong to another replication and are not counted." if others else "")


def job_rows(findings: Findings) -> Rows:
    """Every job with its state, its time and its training tokens."""
    return [
        {
            "job": job["title"],
            "state": job["state"],
            "seconds": job["seconds"],
            "tokens at most": job["tokens"],
        }
        for job in findings["jobs"]
    ]


def matrix(corner: str, down: Iterable[str], across: Iterable[str], cells: Iterable[Sequence[object]]) -> Rows:
    """Cells as rows, each with its name in the column of the corner."""
    names = list(across)
    return [{corner: name, **dict(zip(names, row, strict=True))} for name, row in zip(down, cells, strict=False)]


def shown(value: object) -> str:
    """A value as the report prints it."""
    if value is None or value == "":
        return "—"
    if isinstance(value, Cell):
        return value.text
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
