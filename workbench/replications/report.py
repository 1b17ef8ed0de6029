"""A replication's report: sections of words and tables, the same in Markdown and on the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.replication.estimates import LEVEL, NUM_DRAWS
from workbench.replications.affinity import SETTLED
from workbench.replications.demix import CODE, PAPER, READINGS
from workbench.replications.findings import not_done, summary
from workbench.replications.orders import WORDS
from workbench.replications.paper import STABLE_AFTER
from workbench.replications.reasons import crossing_words, not_reproduced, seeds_words
from workbench.replications.verdicts import UNTESTABLE

Findings = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Section:
    """A heading with its paragraphs, a table and the name of a chart, where it has them."""

    title: str
    words: tuple[str, ...] = ()
    rows: Rows = ()
    chart: str = ""


def title(findings: Findings) -> str:
    """What the report is called."""
    return f"DEMix replicated: {findings['name']} ({findings['size']}, {seeds_words(findings)})"


def sections(findings: Findings) -> list[Section]:
    """The whole report in its order."""
    return [
        Section("In short", (summary(findings), crossing_words(findings), *_missing(findings))),
        Section("The claims", (_MARKS,), claim_rows(findings["claims"])),
        *_readings(findings),
        Section("Perplexity over training tokens", (crossing_words(findings), _CURVES), _course(findings), "curves"),
        *_tables(findings),
        *_pictures(findings),
        Section("What did not come out, and why we think so", tuple(_doubts(findings))),
        _texts(findings),
        *_circumstances(findings),
    ]


_MARKS = (
    "*Reproduced*: the whole interval of the difference lies on the claim's side, and so does the value of every seed "
    "by itself (the value alone: a seed has no interval of its own). *Not reproduced*: it does not; the reason says "
    "whether it is the other way round or undecided. The paper's "
    f"numbers are those of its 125M model, unless another is named. Posterior and prior as in the paper: {PAPER}."
)
_CURVES = (
    "Held-out perplexity on the training domains while the models train, averaged over domains; DEMix with the expert "
    "of the domain. All methods see the same number of tokens per step."
)
_HOW = (
    f"A paired bootstrap of {NUM_DRAWS:,} draws. Each draw takes test documents with replacement (one fewer than there "
    "are, or the interval would be too narrow), within each domain and the same documents for both systems and all "
    "seeds, since they read the same text; then seeds with replacement. A block belongs to the document in which it "
    "begins. Of each draw the perplexity of every domain is computed, averaged over domains as in the paper, then over "
    f"the seeds drawn. The interval is the middle {LEVEL:.0%} of the draws. Two or three seeds say little of how seeds "
    "differ, so the value of each seed must lie on the claim's side as well. What a mode chooses on the text itself "
    "(the best single expert on novel text) and priors estimated on the development text are not drawn again.",
    "Leads of posteriors: the same, over documents of the development text. Table 4's correlation has Fisher's "
    "interval; figure 2's lies around r as r spreads when domains are called by each other's names (Mantel), since its "
    "cells share rows and columns. The share of domains whose posterior is stable has Wilson's interval.",
)


def _texts(findings: Findings) -> Section:
    """How the intervals come about, and how many documents there were to draw."""
    asked = findings["budget"]["prior_blocks"]
    few = [row["text"] for row in findings["texts"] if (row["test documents"] or _FEW) < _FEW]
    short = [row["text"] for row in findings["texts"] if (row["blocks behind a cached prior"] or asked) < asked]
    told = (
        (f"Intervals over fewer than {_FEW} documents are too narrow: {', '.join(few)}.", few),
        (f"Cached priors of fewer than {asked} blocks, since the text has no more: {', '.join(short)}.", short),
    )
    words = (*_HOW, *(sentence for sentence, domains in told if domains))
    return Section("How the intervals come about", words, findings["texts"])


_FEW = 5


def _missing(findings: Findings) -> Iterator[str]:
    if jobs := not_done(findings):
        names = ", ".join(f"{job['title']} ({job['state']})" for job in jobs[:_NAMED])
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        yield f"Not done when this was written, so what needs it is marked {UNTESTABLE}: {names}{more}."


_NAMED = 12


# claims -------------------------------------------------------------------------------------------


def claim_rows(claims: Rows) -> Rows:
    """Claims as a table: the paper's number beside ours, the difference with its interval, the mark."""
    return [
        {
            "where": claim["where"], "claim": claim["sentence"], "paper": claim["paper"], "ours": claim["ours"] or "—",
            "difference [95 %]": with_interval(claim), "each seed": _each(claim["by_seed"]), "mark": claim["mark"],
            "why": claim["why"],
        }
        for claim in claims
    ]  # fmt: skip


def with_interval(claim: Mapping[str, Any]) -> str:
    """`-1.20 [-1.50, -0.90] perplexity`."""
    if claim["value"] is None:
        return "—"
    return f"{claim['value']:+.2f} [{claim['low']:+.2f}, {claim['high']:+.2f}] {claim['unit']}".strip()


def _each(values: Sequence[float | None]) -> str:
    return ", ".join("—" if one is None else f"{one:+.2f}" for one in values) or "—"


def _readings(findings: Findings) -> Iterator[Section]:
    """The claims that the posterior's reading touches, under each reading."""
    by_claim: dict[tuple[str, str], dict[str, str]] = {}
    for one in findings["readings"]:
        by_claim.setdefault((one["where"], one["sentence"]), {})[one["reading"]] = (
            f"{one['mark']}: {with_interval(one)}"
        )
    names = [str(reading) for reading in READINGS]
    rows = [
        {"where": where, "claim": sentence, **{name: marks.get(name, "—") for name in names}}
        for (where, sentence), marks in by_claim.items()
    ]
    told = f"The paper's text is read as “{PAPER}”; its released code does “{CODE}”. The same scores, mixed both ways."
    yield Section("Two readings of the posterior", (told,), rows)
    yield Section("Novel domains under each reading", (), findings["tables"]["5 by reading"], "modes")


# tables, pictures ---------------------------------------------------------------------------------


def _tables(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    yield Section("Table 3: training domains, average perplexity", (), tables["3"])
    yield Section("Table 4: each training domain", (_TABLE_4,), tables["4"])
    yield Section("Table 5: novel domains, average perplexity", (), tables["5"])
    yield Section("Table 6: more experts", (), tables["6"])
    yield Section("Table 7: without an expert, without a domain", (_removed(findings),), tables["7"])
    yield Section("Table 13 and figure 6: adapting, and what is forgotten", (_DAPT,), tables["13"], "forgetting")


_TABLE_4 = "The paper prints this table at 1.3B only, for domains of its own."
_DAPT = (
    "The table: changes of perplexity on test text. The chart: held-out text while a model is adapted, the target "
    "under what learns, the training domains under the whole model or the mixture with its new expert."
)


def _removed(findings: Findings) -> str:
    if not findings["removed"]:
        return "No model was trained without a domain."
    return (
        f"Trained without: {', '.join(findings['removed'])}; the others are not testable here, since each is a whole "
        "training. The paper puts Gutenberg in the place of what it leaves out; here the model has one expert fewer."
    )


_SETTLED = (
    "The chart: the mean end-of-block posterior of the first n blocks, as a cached prior is estimated. The table: how "
    f"far any share moves from the mean over the first {STABLE_AFTER} blocks to that over the next {STABLE_AFTER}, by "
    f"seed; stable is at most {SETTLED:g}."
)
_RATIOS = (
    "Perplexity of each expert (row) on each domain (column) over that of the domain's own expert; mean over seeds."
)
_POSTERIORS = (
    "Mean end-of-block posterior of each expert (column) on held-out text of each domain (row); mean over seeds."
)


def _course(findings: Findings) -> Rows:
    """The curves as a table: perplexity by tokens, averaged over seeds."""
    by_tokens: dict[int, dict[Any, list[float]]] = {}
    for row in findings["curves"]:
        by_tokens.setdefault(row["tokens"], {}).setdefault(row["system"], []).append(row["perplexity"])
    return [
        {"tokens": tokens, **{WORDS.get(name, "DEMix (naive)"): sum(of) / len(of) for name, of in found.items()}}
        for tokens, found in sorted(by_tokens.items())
    ]


def _pictures(findings: Findings) -> Iterator[Section]:
    pictures, domains = findings["pictures"], findings["domains"]
    ratios = [
        {"expert": expert, **dict(zip(domains, row, strict=True))}
        for expert, row in zip(domains, pictures["ratios"] or [], strict=False)
    ]
    beliefs = pictures["posteriors"]
    shares = [{"text": text, **dict(zip(domains, one["mean"], strict=True))} for text, one in beliefs.items()]
    settled = [{"text": text, "moved": _each(one["moved"])} for text, one in beliefs.items()]
    yield Section("Figure 2: who is at home where", (_RATIOS,), ratios, "ratios")
    yield Section("Figure 4: whose domain is it?", (_POSTERIORS,), shares, "posteriors")
    yield Section("Figures 7 and 8: how soon a posterior settles", (_SETTLED,), settled, "courses")


# what did not come out, and where it ran ------------------------------------------------------------


def _doubts(findings: Findings) -> Iterator[str]:
    found = not_reproduced(findings)
    if not found:
        yield "Nothing that could be tested failed."
    for claim, reasons in found:
        told = f"**{claim['where']}: {claim['sentence']}** (paper: {claim['paper']}). Measured: {with_interval(claim)}."
        yield " ".join([told, *reasons])


def _circumstances(findings: Findings) -> Iterator[Section]:
    budget = findings["budget"]
    versions = ", ".join(f"{name} {number}" for name, number in findings["versions"].items())
    shape = ", ".join(f"{name} {value}" for name, value in budget["shape"].items())
    training, adapting = (_budget(budget[name]) for name in ("training", "adapting"))
    words = (
        f"Machine: {findings['machine']}. Versions: {versions}.",
        f"Model: {shape}, vocabulary {budget['vocab_size']:,}.",
        f"Training: {training}; {budget['training_tokens']:,} tokens each. Adapting: {adapting}.",
        f"Test text: at most {budget['test_tokens']:,} tokens of each domain, in blocks of {budget['block_size']}; "
        f"cached priors from at most {budget['prior_blocks']} blocks of development text.",
        _time_words(findings),
    )
    yield Section("Machine, budget and time", words, job_rows(findings))


def _budget(training: Mapping[str, Any]) -> str:
    names = ("num_steps", "sequences_per_domain", "accumulate", "learning_rate", "clip", "precision")
    return ", ".join(f"{name.removeprefix('num_').replace('_', ' ')} {training[name]}" for name in names)


def _time_words(findings: Findings) -> str:
    """How long its jobs took, and what that leaves out."""
    own = [job for job in findings["jobs"] if job["is_own"] and job["seconds"]]
    told = (
        f"The last attempts of its {len(own)} ended jobs took {sum(job['seconds'] for job in own) / 60:,.1f} min "
        "together; those side by side count each by itself, and attempts before a stop do not count."
    )
    others = sum(not job["is_own"] for job in findings["jobs"] if job["seconds"])
    return told + (f" {others} more were another replication's and are not counted." if others else "")


def job_rows(findings: Findings) -> Rows:
    """Every job with its state, its time and its training tokens."""
    return [
        {
            "job": job["title"], "state": job["state"], "seconds": job["seconds"], "tokens at most": job["tokens"],
        }
        for job in findings["jobs"]
    ]  # fmt: skip


# Markdown -----------------------------------------------------------------------------------------


def markdown(findings: Findings) -> str:
    """The report as Markdown, every chart as its table."""
    parts = [f"# {title(findings)}"]
    for section in sections(findings):
        parts += [f"## {section.title}", *section.words, *([_table(section.rows)] if section.rows else [])]
    return "\n\n".join(parts) + "\n"


def _table(rows: Rows) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(map(_cell, names)) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(_cell(shown(row.get(name))) for name in names) + " |" for row in rows])


def _cell(text: str) -> str:
    """Text that cannot end its cell or begin a tag."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def shown(value: object) -> str:
    """A value as the report prints it."""
    if value is None or value == "":
        return "—"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
