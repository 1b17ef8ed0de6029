"""A replication's report: sections of words and tables, the same in Markdown and on the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.replications.bootstrap import LEVEL, NUM_DRAWS, STRETCH_TOKENS
from workbench.replications.demix import CODE, PAPER, READINGS
from workbench.replications.findings import summary
from workbench.replications.orders import WORDS
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
        Section("How the intervals come about", (_HOW,)),
        *_circumstances(findings),
    ]


_MARKS = (
    "*Reproduced*: the whole interval of the difference lies on the claim's side, and so does every seed by itself. "
    "*Not reproduced*: it does not; the reason says whether it is the other way round or undecided. The paper's "
    f"numbers are those of its 125M model, unless another is named. Posterior and prior as in the paper: {PAPER}."
)
_CURVES = (
    "Held-out perplexity on the training domains while the models train, averaged over domains; DEMix with the expert "
    "of the domain. All methods see the same number of tokens per step."
)
_HOW = (
    f"A paired bootstrap of {NUM_DRAWS:,} draws. Each draw takes stretches of about {STRETCH_TOKENS:,} neighbouring "
    "test tokens with replacement, within each domain and the same stretches for both systems and all seeds; then "
    "seeds with replacement. Of each draw the perplexity of every domain is computed, averaged over domains as in the "
    f"paper, then over the seeds drawn. The interval is the middle {LEVEL:.0%} of the draws. Two or three seeds say "
    "little of how seeds differ, so a claim must hold in each seed by itself as well. What a mode chooses on the text "
    "itself (the best single expert on novel text) and priors estimated on the development text are not drawn again. "
    "Intervals of correlations are Fisher's; those of posteriors are drawn over blocks."
)


def _missing(findings: Findings) -> Iterator[str]:
    if findings["unfinished"]:
        names = ", ".join(findings["unfinished"][:12])
        more = len(findings["unfinished"]) - 12
        yield f"Not finished yet, so marked {UNTESTABLE}: {names}{f' and {more} more' if more > 0 else ''}."


# claims -------------------------------------------------------------------------------------------


def claim_rows(claims: Rows) -> Rows:
    """Claims as a table: the paper's number beside ours, the difference with its interval, the mark."""
    return [
        {
            "where": claim["where"], "claim": claim["sentence"], "paper": claim["paper"], "ours": claim["ours"] or "—",
            "difference [95 %]": with_interval(claim), "each seed": _each(claim), "mark": claim["mark"],
            "why": claim["why"],
        }
        for claim in claims
    ]  # fmt: skip


def with_interval(claim: Mapping[str, Any]) -> str:
    """`-1.20 [-1.50, -0.90] perplexity`."""
    if claim["value"] is None:
        return "—"
    return f"{claim['value']:+.2f} [{claim['low']:+.2f}, {claim['high']:+.2f}] {claim['unit']}".strip()


def _each(claim: Mapping[str, Any]) -> str:
    return ", ".join(f"{one:+.2f}" for one in claim["by_seed"]) or "—"


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
    "The mean end-of-block posterior of the first n blocks, as a cached prior is estimated; settled is where no share "
    "moves by more than 0.05 from its value after all blocks."
)
_RATIOS = (
    "Perplexity of each expert (row) on each domain (column) over that of the domain's own expert; mean over seeds."
)
_POSTERIORS = (
    "Mean end-of-block posterior of each expert (column) on held-out text of each domain (row); mean over seeds."
)


def _course(findings: Findings) -> Rows:
    """The curves as a table: perplexity by tokens, averaged over seeds."""
    by_tokens: dict[int, dict[str, list[float]]] = {}
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
    settled = [{"text": text, "settled after blocks": one["settled_after"]} for text, one in beliefs.items()]
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
        f"cached priors from {budget['prior_blocks']} blocks of development text.",
        f"The jobs together took {_together(findings):,.1f} min of computing; those side by side count each by itself.",
    )
    yield Section("Machine, budget and time", words, job_rows(findings))


def _budget(training: Mapping[str, Any]) -> str:
    names = ("num_steps", "sequences_per_domain", "accumulate", "learning_rate", "clip", "precision")
    return ", ".join(f"{name.removeprefix('num_').replace('_', ' ')} {training[name]}" for name in names)


def _together(findings: Findings) -> float:
    return sum(job["seconds"] or 0.0 for job in findings["jobs"]) / 60


def job_rows(findings: Findings) -> Rows:
    """Every job with its state, its time and its training tokens."""
    return [
        {"job": job["title"], "state": job["state"], "seconds": job["seconds"], "tokens at most": job["tokens"]}
        for job in findings["jobs"]
    ]


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
