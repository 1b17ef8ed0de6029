"""The sections of DEMix's report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench_studies.core.findings import Findings
from workbench_studies.core.report import (
    Rows,
    Section,
    circumstances,
    each_seed,
    failed,
    headline,
    in_short,
    intervals,
    the_claims,
    training_words,
    with_interval,
)
from workbench_studies.core.study import read_texts
from workbench_studies.demix.affinity import SETTLED
from workbench_studies.demix.calibrated import where_it_holds
from workbench_studies.demix.names import CODE, PAPER, READINGS
from workbench_studies.demix.orders import WORDS
from workbench_studies.demix.paper import STABLE_AFTER
from workbench_studies.demix.reasons import crossing_words, few_tokens, reasons
from workbench_studies.demix.specifications import paper_models

TEXTS = read_texts(__file__)


def sections(findings: Findings) -> list[Section]:
    """All sections of the report, in order."""
    return [
        in_short(findings, headline(findings)),
        the_claims(findings, _MARKS),
        *_readings(findings),
        *_calibrated(findings),
        Section(
            "Perplexity over training tokens", (crossing_words(findings), TEXTS["curves"]), _history(findings), "curves"
        ),
        *_tables(findings),
        *_pictures(findings),
        failed(findings, reasons, *few_tokens(findings)),
        intervals(findings, TEXTS["how"]),
        circumstances(findings, _trainings(findings)),
    ]


_MARKS = (
    "The paper's numbers are those of its 125M model, unless another is named. Numbers here are read as in the paper: "
    f"{PAPER}. A claim that depends on the reading has the mark of the paper's text (prefix) and that of its released "
    f"code ({CODE}), whose numbers stand in the next section."
)


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
    sentence = (
        f"The paper's text is read as “{PAPER}”; its released code does “{CODE}”. The same scores, mixed both ways."
    )
    yield Section("Two readings of the posterior", (sentence,), rows)
    yield Section("Novel domains under each reading", (), findings["tables"]["5 by reading"], "modes")
    if rows := findings["tables"].get("5 by λ"):
        yield Section("DEMix (updating) by λ of Eq. 9", (TEXTS["by_lambda"],), rows)


def _calibrated(findings: Findings) -> Iterator[Section]:
    """The reading that is ours; nothing in reports from before there was one."""
    if "calibrated" not in findings:
        return
    own = findings["calibrated"]
    if not own["fits"]:
        yield Section(_OURS, ("Not fitted yet: it needs dev scores of two training domains at least.",))
        return
    holds = where_it_holds(findings)
    limit = f"{holds} {TEXTS['limit']}".strip()
    yield Section(_OURS, (_FITTED, limit), [_against_row(row) for row in own["against"]], "calibrated")
    yield Section("Calibrated (ours): the fit of each seed", (TEXTS["fits"],), [_fit_row(row) for row in own["fits"]])
    yield Section("Calibrated (ours): each domain", (_EACH,), own["by domain"])


_OURS = "A third reading, ours: calibrated on dev text"
_FITTED = (
    "How much evidence counts, its decay and its power, is fitted for each seed on dev text of the training domains "
    "alone: mixed with all experts, and without each domain's own, as if it were novel. The fit starts from equal "
    "priors, so *uniform* is what it is made for; no share of the prior is fitted. No dev text of a novel domain and "
    "no test text is read by the fit; as in the paper, a cached prior is estimated on dev text of the domain that is "
    f"tested, and the updating prior is the paper's (newest block {PAPER.newest_weight:g}). No claim of the paper is "
    "judged by this reading."
)
_EACH = "Perplexity on test text, with a cached prior."


def _against_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": row["text"],
        "system": WORDS[row["mode"]],
        "against": row["against"],
        "calibrated": row["calibrated"],
        "other": row["other"],
        "difference [95 %]": with_interval({**row["difference"], "unit": ""}),
        "change, % [95 %]": with_interval({**row["change"], "unit": ""}),
        "each seed": each_seed(row["difference"]["by_seed"]),
        "calibrated has": row["side"],
    }


def _fit_row(row: dict[str, Any]) -> dict[str, Any]:
    gain = {"value": row["gain, %"], "low": row["low"], "high": row["high"], "unit": ""}
    return {
        "seed": row["seed"],
        **{name: f"{row[name]:g}" if row[name] is not None else None for name in _NUMBERS},
        "setting": "the paper's, kept" if row["is kept"] else "fitted",
        "domains read": row["dev domains"],
        "gain on dev text, % [95 %]": with_interval(gain),
        "without its own, %": row["left out, %"],
    }


_NUMBERS = ("decay", "power", "slow decay", "slow power")


# tables, pictures ---------------------------------------------------------------------------------


def _tables(findings: Findings) -> Iterator[Section]:
    tables = findings["tables"]
    if "1" in tables:  # reports from before there were these two lack them
        yield Section("Table 1: words of each domain", (TEXTS["table_1"],), tables["1"])
        yield Section("Table 2: the trained models", (TEXTS["table_2"],), _models(tables["2"]))
    yield Section("Table 3: training domains, average perplexity", _read_as(tables["3"]), tables["3"])
    yield Section("Table 4: each training domain", (_TABLE_4,), tables["4"])
    yield Section("Table 5: novel domains, average perplexity", _read_as(tables["5"]), tables["5"])
    yield Section("Each novel domain", (_NOVEL,), tables.get("5 by domain", []))
    yield Section("Table 6: more experts", (), tables["6"])
    yield Section("Table 7: without an expert, without a domain", (_removed(findings),), tables["7"])
    if rows := tables.get("interleaving"):
        yield Section("Experts in some layers only (§3.3)", (TEXTS["interleaving"],), rows)
    yield Section(
        "Table 13 and figure 6: adapting, and what is forgotten", (TEXTS["dapt"],), tables["13"], "forgetting"
    )


def _models(rows: Rows) -> Rows:
    """Our models, with the paper's below them; reports from before devices were recorded lack those."""
    every = [*rows, *paper_models()]
    return [{name: row.get(name) for name in every[-1]} for row in every] if rows else []


def _read_as(rows: Rows) -> tuple[str, ...]:
    """What the column of readings means; nothing for reports from before there was one."""
    return (_READ_AS,) if any(row.get("reading") for row in rows) else ()


_READ_AS = (
    f"The paper's numbers stand beside its own reading of the posterior, “{PAPER}”. Below are the released code's, and "
    "one that is ours and not the paper's: evidence calibrated on dev text."
)
_TABLE_4 = "The paper prints this table at 1.3B only, for domains of its own."
_NOVEL = "Perplexity on the domains whose averages are in table 5."


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


def _history(findings: Findings) -> Rows:
    """The curves as a table: perplexity by tokens, averaged over seeds."""
    by_tokens: dict[int, dict[Any, list[float]]] = {}
    for row in findings["curves"]:
        by_tokens.setdefault(row["tokens"], {}).setdefault(row["system"], []).append(row["perplexity"])
    return [
        {"tokens": tokens, **{WORDS.get(name, "DEMix (naive)"): sum(of) / len(of) for name, of in result.items()}}
        for tokens, result in sorted(by_tokens.items())
    ]


def _pictures(findings: Findings) -> Iterator[Section]:
    pictures, domains = findings["pictures"], findings["domains"]
    ratios = [
        {"expert": expert, **dict(zip(domains, row, strict=True))}
        for expert, row in zip(domains, pictures["ratios"] or [], strict=False)
    ]
    beliefs = pictures["posteriors"]
    shares = [{"text": text, **dict(zip(domains, one["mean"], strict=True))} for text, one in beliefs.items()]
    settled = [{"text": text, "moved": each_seed(one["moved"])} for text, one in beliefs.items()]
    yield Section("Figure 2: specialization", (TEXTS["ratios"],), ratios, "ratios")
    yield Section("Figure 4: posterior of each domain", (TEXTS["posteriors"],), shares, "posteriors")
    yield Section("Figures 7 and 8: blocks until a posterior is stable", (_SETTLED,), settled, "courses")


def _trainings(findings: Findings) -> str:
    budget = findings["budget"]
    training, adapting = (training_words(budget[name]) for name in ("training", "adapting"))
    return f"Training: {training}; {budget['training_tokens']:,} tokens each. Adapting: {adapting}."
