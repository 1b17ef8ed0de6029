"""Stored findings as the rule of today judges their numbers, in the marks of today.

An older report had one mark for contradicted and undecided, intervals that could be narrower than Student's over only
the seeds, and no mark for what is implied. All of it follows from what is stored of a claim: its value, its interval,
the value of each seed, its side and its border. Claims that could not have come out otherwise are *implied*, with the
reason, and do not count as reproduced: some are declared in the paper's study; what repeats the numbers of an earlier
claim is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isclose
from typing import Any

from engine.statistics.estimates import Estimate
from workbench_studies.core.averages import CORRELATION, SHARE
from workbench_studies.core.measurements import side_of
from workbench_studies.core.report import claim_name
from workbench_studies.core.study import Study
from workbench_studies.core.verdicts import IMPLIED, MARKS, REPRODUCED, WEAKER, Claim, judge, todays_mark
from workbench_studies.demix.names import READ_AS_PAPER
from workbench_studies.papers.catalog import paper_of

Row = Mapping[str, Any]
SAME = 0.02  # of half the interval: numbers that are nearer than this are the same
_BOUNDS = {"of the domains": SHARE, "r over": CORRELATION}  # by how a unit starts
_ADAPTED = "The claims of table 6, figure 6, §6.2 and table 13 are about models that were"


def with_todays_marks(findings: Row) -> dict[str, Any]:
    """The findings with the marks that their numbers have today; what changed is added to their notes."""
    stored, readings = (
        [{**row, "mark": todays_mark(row)} for row in findings.get(name, ())] for name in ("claims", "readings")
    )
    claims, read = (list(map(_judge_again, rows)) for rows in (stored, readings))
    notes = _describe_changes([*stored, *readings], [*claims, *read])
    claims, read = mark_implied(paper_of(findings).study, claims, read)
    setting = adapting_rate(findings.get("budget", {}))
    claims = [_with_readings(claim, read) for claim in claims]
    if setting:
        adapted = [claim["where"] in _ADAPTED_PLACES and claim.get("value") is not None for claim in claims]
        claims = [{**one, "setting": setting} if is_so else one for one, is_so in zip(claims, adapted, strict=True)]
    counts = Counter(claim["mark"] for claim in claims)
    result = {**findings, "claims": claims, "marks": {mark: counts[mark] for mark in MARKS}}
    if "readings" in findings:
        result["readings"] = read
    if "sentences" in findings:
        today = {claim_name(claim): claim["mark"] for claim in claims}
        result["sentences"] = [
            {
                **sentence,
                "judged_by": [
                    {**one, "mark": today.get(claim_name(one), one["mark"])} for one in sentence["judged_by"]
                ],
            }
            for sentence in findings["sentences"]
        ]
    if "calibrated" in findings:
        against = [_compare_again(row) for row in findings["calibrated"].get("against", ())]
        result["calibrated"] = {**findings["calibrated"], "against": against}
    if setting:
        result["setting"] = f"{_ADAPTED} {setting}."
    if notes:
        result["notes"] = [*findings.get("notes", ()), *notes]
    return result


def _judge_again(row: Row) -> Row:
    """A claim with the interval and the mark of today; itself if its interval is wide enough."""
    if not row.get("side") or row.get("value") is None:
        return row
    unit, by_seed = str(row.get("unit")), tuple(value for value in row["by_seed"] if value is not None)
    estimate = Estimate(row["value"], row["low"], row["high"], by_seed)
    bounds = next((bounds for start, bounds in _BOUNDS.items() if unit.startswith(start)), (-inf, inf))
    if (wide := estimate.over_seeds(bounds)) == estimate:
        return row
    claim = Claim(row["where"], row["sentence"], row["paper"], row.get("weaker", ""))
    options = {} if row["side"] == "within" else {"num_domains": row["num_domains"]}
    judged = judge(row["side"], claim, wide, row["border"], **options).as_dict()
    return {**row, **{name: judged[name] for name in ("low", "high", "mark", "why", "is_undecided")}}


def _describe_changes(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """How many intervals became wider, and which marks changed with them, in a sentence; none where none did."""
    pairs = list(zip(before, after, strict=True))
    wider = sum(one is not two for one, two in pairs)
    turned = [(one["mark"], two) for one, two in pairs if one["mark"] != two["mark"]]
    if not wider:
        return []
    own = [f"“{claim_name(row)}” from {mark} to {row['mark']}" for mark, row in turned if "reading" not in row]
    listed = "; ".join(own) or "none"
    marks = f"{len(turned)} marks changed, of claims by their first reading: {listed}" if turned else "no mark changed"
    return [
        "Judged again from its numbers, by the rule that an interval is never narrower than Student's over the seeds "
        f"alone: of {len(after)} intervals, those of further readings included, {wider} became wider, and {marks}. "
        "Averages in tables keep the intervals that they were written with, since the value of each seed is not stored "
        "with them."
    ]


# what is implied ---------------------------------------------------------------------------------


def mark_implied(study: Study, claims: Sequence[Row], readings: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The claims of a paper, and those under each reading of the posterior, with what is implied marked so."""
    read = {claim_name(row) for row in readings}
    unread = [row for row in claims if claim_name(row) not in read]
    names = dict.fromkeys(str(row["reading"]) for row in readings)
    by_reading = {name: [row for row in readings if row["reading"] == name] for name in names}
    first = next(iter(names), "prefix")
    marked = [row for name, own in by_reading.items() for row in _mark_rows(study, own, evidence_of(name), unread)]
    return list(_mark_rows(study, claims, evidence_of(first), ())), marked


def evidence_of(reading: str) -> str:
    """`prefix` of `prefix, newest block 0.7`."""
    return reading.partition(",")[0]


def _mark_rows(study: Study, rows: Sequence[Row], evidence: str, others: Sequence[Row]) -> Iterator[Row]:
    holding = [row for row in (*others, *rows) if row["mark"] in (REPRODUCED, WEAKER)]
    held = {declared.id for row in holding if (declared := study.find_claim(row))}
    before = [row for row in others if row in holding]
    for row in rows:
        if row not in holding:
            yield row
            continue
        declared = study.find_claim(row)
        implied = declared.implied if declared else None
        follows = implied and implied.evidence in ("", evidence) and (not implied.follows or implied.follows in held)
        repeated = next((f"Its numbers are those of “{claim_name(one)}”." for one in before if _is_same(row, one)), "")
        before.append(row)
        why = implied.why if implied and follows else repeated
        yield {**row, "mark": IMPLIED, "why": f"{why} {row['why']}".strip()} if why else row


def _is_same(row: Row, earlier: Row) -> bool:
    """Whether two claims have the same numbers, as far as their borders are concerned and up to a small difference."""
    own, known = _numbers(row), _numbers(earlier)
    if row.get("unit") != earlier.get("unit") or len(own) != len(known) or not own:
        return False
    farthest = max(abs(a - b) for a, b in zip(own, known, strict=True))
    return farthest <= SAME * float(row["high"] - row["low"]) / 2


def _numbers(row: Row) -> list[float]:
    """The value, the interval and each seed's value, counted from the border to the claim's side; none if unmeasured.

    The first stored reports have neither a side nor a border.
    """
    side = row.get("side")
    if row.get("value") is None or side is None:
        return []
    sign = 1 if side == "below" else -1
    ends = sorted(sign * (row[end] - row["border"]) for end in ("low", "high"))
    own = [row["border"]] if side == "within" else []
    return [*ends, *own, *(sign * (one - row["border"]) for one in (row["value"], *row["by_seed"]))]


# what depends on the marks ------------------------------------------------------------------------


def _with_readings(claim: Row, read: Sequence[Row]) -> Row:
    """The claim with its mark under the paper's reading and under that of its released code, where it has one."""
    marks = {row["reading"]: row["mark"] for row in read if claim_name(row) == claim_name(claim)}
    both = {evidence_of(name): marks[name] for name in list(marks)[:2]}
    if read and not both and claim["where"] in READ_AS_PAPER:
        both = {evidence_of(read[0]["reading"]): claim["mark"]}
    return {**claim, "by_evidence": both} if both and claim["value"] is not None else claim


def _compare_again(row: Row) -> Row:
    """A comparison of the calibrated reading, with intervals that are as wide as those of its seeds."""
    wide = {
        name: Estimate(**{**row[name], "by_seed": tuple(row[name]["by_seed"])}).over_seeds()
        for name in ("difference", "change")
    }
    intervals = {name: {**row[name], "low": one.low, "high": one.high} for name, one in wide.items()}
    return {**row, **intervals, "side": side_of(*wide.values())}


# the rate at which DEMix is adapted: §6.1 asks for a tenth of the training's ----------------------------

PAPER_SHARE = 0.1  # of the training's learning rate (DEMix §6.1)


def adapting_rate(budget: Mapping[str, Any]) -> str:
    """`adapted at 0.5 of the training's learning rate (§6.1: 0.1)`; empty at the paper's."""
    training, adapting = (budget.get(name, {}).get("learning_rate") for name in ("training", "adapting"))
    if not training or adapting is None or isclose(adapting / training, PAPER_SHARE, rel_tol=0.01):
        return ""
    return f"adapted at {adapting / training:g} of the training's learning rate (§6.1: {PAPER_SHARE:g})"


_ADAPTED_PLACES = ("Table 6", "Figure 6", "§6.2", "Table 13", "Table 13, Figure 6")  # of the claims on it
