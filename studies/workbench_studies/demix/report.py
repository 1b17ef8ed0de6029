"""What only code can say in DEMix's report; its paragraphs and tables are declared in `report.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from workbench_studies.core.report import Report, Rows, amount, each_seed, join_names, matrix, with_interval
from workbench_studies.core.spec import read_table
from workbench_studies.core.verdicts import CONTRADICTED, REPRODUCED, UNDECIDED, Findings
from workbench_studies.demix.names import CODE, PAPER, PRINTED, READINGS, WORDS
from workbench_studies.demix.tables import NOVEL, TRAINING

_DECLARED = read_table(__file__, "report")
_TEXTS = _DECLARED["texts"]
_FITTED_MODE = "uniform"  # the fit starts from equal priors


# our own reading ----------------------------------------------------------------------------------


def _ours(findings: Findings, fitted: str, unknown: str = "") -> str:
    """What is said of the reading where it was fitted, or is not yet; empty of reports from before there was one."""
    if "calibrated" not in findings:
        return ""
    return fitted if findings["calibrated"]["fits"] else unknown


def where_it_holds(findings: Findings) -> str:
    """On which text the reading has surely less perplexity than Dense and than the paper's and the code's reading.

    Empty of reports without it.
    """
    rows: list[dict[str, Any]] = findings.get("calibrated", {}).get("against", [])
    parts = []
    for text in (TRAINING, NOVEL):
        own = [row for row in rows if row["text"] == text]
        rivals = (WORDS["dense"], str(PAPER), str(CODE))
        compared = [_describe_sides(name, [row for row in own if row["against"] == name]) for name in rivals]
        if own:
            parts.append(f"On the {text} it has {'; '.join(compared)}.")
    losing = [
        f"on the {row['text']}, {row['mode']} against {row['against']} ({row['calibrated']:.2f} against "
        f"{row['other']:.2f})"
        for row in rows
        if row["side"] == "more"
    ]
    caution = [f"So it is not better everywhere; it loses {'; '.join(losing)}."] if losing else []
    return " ".join([*parts, *caution])


def _describe_sides(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """`less perplexity than Dense (uniform, cached), and no sure difference from it (updating)`."""
    words = {"less": "less perplexity than", "more": "more perplexity than", "undecided": "no sure difference from"}
    sides = {side: [row["mode"] for row in rows if row["side"] == side] for side in words}
    return ", ".join(f"{words[side]} {name} ({', '.join(modes)})" for side, modes in sides.items() if modes)


def describe_changes(findings: Findings) -> str:
    """The changes against Dense of the mode that the fit is made for: `-13.5 % on the novel domains`; empty without."""
    rows: list[dict[str, Any]] = findings.get("calibrated", {}).get("against", [])
    own = [row for row in rows if (row["mode"], row["against"]) == (_FITTED_MODE, WORDS["dense"])]
    return ", ".join(f"{row['change']['value']:+.1f} % on the {row['text']}" for row in own)


# paragraphs and tables ----------------------------------------------------------------------------


def describe_crossing(findings: Findings, method: str = "dense") -> str:
    """Whether DEMix overtakes a baseline (Dense) on held-out text while they train, and where."""
    result, other = findings["crossing"].get(method), WORDS[method]
    if not result:
        return f"Whether DEMix overtakes {other} is not known yet: their curves are missing."
    numbers = f"{result['lower']:.2f} against {result['higher']:.2f}"
    last = f"at the end ({amount(result['last_tokens'])} tokens) {numbers} on some development text"
    if result["tokens"] is None:
        return f"DEMix (naive) does not overtake {other} within this training: {last}."
    return f"DEMix (naive) is below {other} from {amount(result['tokens'])} tokens on, and stays there: {last}."


def _read_as(findings: Findings, table: str) -> str:
    """What the column of readings means; empty for reports from before there was one."""
    return _TEXTS["read_as"] if any(row.get("reading") for row in findings["tables"][table]) else ""


def _describe_removed(findings: Findings) -> str:
    if not findings["removed"]:
        return "No model was trained without a domain."
    return (
        f"Trained without: {', '.join(findings['removed'])}; the others are not testable here, since each is a whole "
        "training. The paper puts Gutenberg in the place of what it leaves out; here the model has one expert fewer."
    )


def _reading_rows(findings: Findings) -> Rows:
    """The claims that the posterior's reading touches, under each reading."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for one in findings["readings"]:
        named = {"where": one["where"], "claim": one["sentence"]}
        row = rows.setdefault((one["where"], one["sentence"]), named | dict.fromkeys(map(str, READINGS), "—"))
        row[one["reading"]] = f"{one['mark']}: {with_interval(one)}"
    return list(rows.values())


def _model_rows(findings: Findings) -> Rows:
    """Our models, with the paper's below them."""
    rows = findings["tables"].get("2", [])
    return [*rows, *PRINTED["table_2"]] if rows else []


def _curve_rows(findings: Findings) -> Rows:
    """Perplexity by tokens, averaged over seeds."""
    by_tokens: dict[int, dict[Any, list[float]]] = {}
    for row in findings["curves"]:
        by_tokens.setdefault(row["tokens"], {}).setdefault(row["system"], []).append(row["perplexity"])
    return [
        {"tokens": tokens, **{WORDS.get(name, "DEMix (naive)"): sum(of) / len(of) for name, of in result.items()}}
        for tokens, result in sorted(by_tokens.items())
    ]


def _ratio_rows(findings: Findings) -> Rows:
    return matrix("expert", findings["domains"], findings["domains"], findings["pictures"]["ratios"] or [])


def _posterior_rows(findings: Findings) -> Rows:
    beliefs = findings["pictures"]["posteriors"]
    return matrix("text", beliefs, findings["domains"], [belief["mean"] for belief in beliefs.values()])


def _drift_rows(findings: Findings) -> Rows:
    beliefs = findings["pictures"]["posteriors"]
    return [{"text": text, "moved": each_seed(belief["moved"])} for text, belief in beliefs.items()]


# what did not come out ----------------------------------------------------------------------------


def reasons(findings: Findings, claim: Mapping[str, Any]) -> Iterator[str]:
    """Possible reasons why a claim was not reproduced, from the replication's own numbers."""
    if "adapting" in claim.get("topics", ()):  # reports of older versions have none
        yield tokens_of_a_target(findings)
    better = [
        one["reading"]
        for one in findings["readings"]
        if (one["where"], one["sentence"]) == (claim["where"], claim["sentence"])
        and one["mark"] == REPRODUCED
        and one["reading"] != str(PAPER)
    ]
    if better:
        listed = "; ".join(better)
        yield f"The same scores, mixed otherwise: it is reproduced under another reading of the posterior: {listed}."


def tokens_of_a_target(findings: Findings) -> str:
    """How much text of a target adapting sees, and what dense-DAPT makes of as much; no arm varies that amount."""
    tokens = f"Adapting sees at most {amount(findings['budget']['adapting_tokens'])} tokens of its target."
    by_target: dict[str, list[float]] = {}
    for row in findings.get("tables", {}).get("13", []):
        if (value := row.get("perplexity on the target")) is not None:
            by_target.setdefault(row["target"], []).append(value)  # dense-DAPT, then DEMix-DAPT
    both = [values for values in by_target.values() if len(values) == 2]
    ahead = sum(dense < demix for dense, demix in both)
    if not ahead:
        return f"{tokens} No arm varies how many."
    return (
        f"{tokens} From as many, dense-DAPT has less perplexity than DEMix-DAPT on {ahead} of {len(both)} targets, so "
        "the amount of text alone is not the cause. Dense-DAPT trains all parameters, DEMix-DAPT those of the new "
        "expert; no arm tells these apart."
    )


def few_tokens(findings: Findings) -> Iterator[str]:
    """One guess for all claims that failed against models whose feed-forward networks see all text."""
    failed = {
        number: claim["model"]
        for number, claim in enumerate(findings["claims"], 1)
        if "full data" in claim.get("topics", ()) and claim["mark"] in (CONTRADICTED, UNDECIDED)
    }
    if failed:
        methods = list(dict.fromkeys(failed.values()))
        numbers, models = join_names(map(str, failed)), join_names(WORDS[method] for method in methods)
        crossings = " ".join(describe_crossing(findings, method) for method in methods)
        total = findings["budget"]["training_tokens"]
        each = amount(total // len(findings["domains"]))
        yield (
            f"Guess: few tokens, for claim{'' if len(failed) == 1 else 's'} {numbers}. An expert sees one domain's "
            f"share of the text, {each} of {amount(total)} tokens; the feed-forward networks of {models} see all of "
            f"it. {crossings}"
        )


REPORT = Report(
    _DECLARED,
    reasons,
    {
        "papers_reading": lambda _: PAPER,
        "codes_reading": lambda _: CODE,
        "ours": partial(_ours, fitted=_TEXTS["fitted"], unknown=_TEXTS["not_fitted"]),
        "limit_of_ours": lambda findings: _ours(findings, f"{where_it_holds(findings)} {_TEXTS['limit']}".strip()),
        "crossing_dense": describe_crossing,
        "read_as_3": partial(_read_as, table="3"),
        "read_as_5": partial(_read_as, table="5"),
        "removed_words": _describe_removed,
    },
    {
        "readings": _reading_rows,
        "curves": _curve_rows,
        "2": _model_rows,
        "ratios": _ratio_rows,
        "posteriors": _posterior_rows,
        "courses": _drift_rows,
    },
    few_tokens,
    {"system": WORDS.__getitem__, "kept": lambda is_kept: "the paper's, kept" if is_kept else "fitted"},
)
