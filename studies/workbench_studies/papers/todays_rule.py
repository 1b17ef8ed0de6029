"""Stored findings as the rule of today judges their numbers, in the marks of today.

An older report had one mark for contradicted and undecided, intervals that could be narrower than Student's over the
seeds alone, and no mark for what is implied. All of it follows from what is stored of a claim: its value, its interval,
the value of each seed, its side and its border. Claims that could not have come out otherwise are *implied*, with the
reason, and do not count as reproduced: some are declared in the paper's study; what repeats the numbers of an earlier
claim is found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import isclose
from typing import Any

from engine.statistics.estimates import Estimate
from workbench_studies.core.averages import CORRELATION, SHARE
from workbench_studies.core.calibration import side_of
from workbench_studies.core.report import claim_name
from workbench_studies.core.study import Implied, Study
from workbench_studies.core.verdicts import (
    IMPLIED,
    MARKS,
    REPRODUCED,
    WEAKER,
    Claim,
    Verdict,
    is_above,
    is_below,
    is_within,
    todays_mark,
)
from workbench_studies.demix.names import READ_AS_PAPER
from workbench_studies.papers.catalog import paper_of

Row = Mapping[str, Any]
SAME = 0.02  # of half the interval: numbers that are nearer than this are the same
_BOUNDS = {"of the domains": SHARE, "r over": CORRELATION}  # by how a unit starts
_ANYWHERE = (float("-inf"), float("inf"))
_JUDGES: Mapping[str, Callable[..., Verdict]] = {"below": is_below, "above": is_above, "within": is_within}


def in_todays_words(findings: Row) -> dict[str, Any]:
    """The findings with the marks that their numbers have today; what changed is added to their notes."""
    stored = [_in_todays_marks(one) for one in findings["claims"]]
    readings = [_in_todays_marks(one) for one in findings.get("readings", ())]
    claims, read = (list(map(_judged, rows)) for rows in (stored, readings))
    notes = _changed([*stored, *readings], [*claims, *read])
    claims, read = mark_implied(paper_of(findings).study, claims, read)
    setting = adapting_rate(findings.get("budget", {}))
    claims = [_with_setting(_with_readings(one, read), setting) for one in claims]
    counted = [claim["mark"] for claim in claims]
    result = {**findings, "claims": claims, "marks": {mark: counted.count(mark) for mark in MARKS}}
    if "readings" in findings:
        result["readings"] = read
    if "sentences" in findings:
        result["sentences"] = [_with_marks(one, claims) for one in findings["sentences"]]
    if "calibrated" in findings:
        result["calibrated"] = _compared_again(findings["calibrated"])
    more = {"setting": f"{_ADAPTED} {setting}."} if setting else {}
    return result | more | ({"notes": [*findings.get("notes", ()), *notes]} if notes else {})


_ADAPTED = "The claims of table 6, figure 6, §6.2 and table 13 are about models that were"


def _in_todays_marks(row: Row) -> Row:
    return {**row, "mark": todays_mark(row)}


def _judged(row: Row) -> Row:
    """A claim with the interval and the mark of today; itself if its interval is wide enough."""
    estimate = _estimate(row) if row.get("side") else None
    if estimate is None or (wide := estimate.over_seeds(_bounds(row))) == estimate:
        return row
    claim = Claim(row["where"], row["sentence"], row["paper"], row.get("weaker", ""))
    judged = _JUDGES[row["side"]](claim, wide, row["border"], **_options(row))
    return {**row, "low": wide.low, "high": wide.high, **{name: judged.as_dict()[name] for name in _JUDGED}}


_JUDGED = ("mark", "why", "is_undecided")


def _options(row: Row) -> dict[str, Any]:
    return {} if row["side"] == "within" else {"num_domains": row["num_domains"]}


def _estimate(row: Row) -> Estimate | None:
    if row.get("value") is None:
        return None
    return Estimate(row["value"], row["low"], row["high"], tuple(one for one in row["by_seed"] if one is not None))


def _bounds(row: Row) -> tuple[float, float]:
    return next((both for unit, both in _BOUNDS.items() if str(row.get("unit")).startswith(unit)), _ANYWHERE)


def _changed(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
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
    marked = [row for name, own in by_reading.items() for row in _marked(study, own, evidence_of(name), unread)]
    return list(_marked(study, claims, evidence_of(first), ())), marked


def evidence_of(reading: str) -> str:
    """`prefix` of `prefix, newest block 0.7`."""
    return reading.partition(",")[0]


def _marked(study: Study, rows: Sequence[Row], evidence: str, others: Sequence[Row]) -> Iterator[Row]:
    holding = [row for row in (*others, *rows) if row["mark"] in (REPRODUCED, WEAKER)]
    held, before = {study.id_of(row) for row in holding}, [row for row in others if row in holding]
    for row in rows:
        if row not in holding:
            yield row
            continue
        own = study.declared(row)
        declared = _why(own.implied, evidence, held) if own and own.implied else ""
        repeated = next((f"Its numbers are those of “{claim_name(one)}”." for one in before if _is_same(row, one)), "")
        before.append(row)
        why = declared or repeated
        yield {**row, "mark": IMPLIED, "why": f"{why} {row['why']}".strip()} if why else row


def _why(implied: Implied, evidence: str, held: Collection[str]) -> str:
    """Why a claim that was judged with this evidence is implied where these claims hold; empty where it is not."""
    is_so = implied.evidence in ("", evidence) and (not implied.follows or implied.follows in held)
    return implied.why if is_so else ""


def _is_same(row: Row, other: Row) -> bool:
    """Whether two claims have the same numbers, as far as their borders are concerned and up to a small difference."""
    one, two = _numbers(row), _numbers(other)
    if row.get("unit") != other.get("unit") or len(one) != len(two) or not one:
        return False
    farthest = max(abs(a - b) for a, b in zip(one, two, strict=True))
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


def _with_setting(claim: Row, setting: str) -> Row:
    is_of_it = setting and claim.get("value") is not None and is_adapted(claim)
    return {**claim, "setting": setting} if is_of_it else claim


def _with_marks(sentence: Row, claims: Sequence[Row]) -> Row:
    marks = {claim_name(claim): claim["mark"] for claim in claims}
    judged_by = [{**one, "mark": marks.get(claim_name(one), one["mark"])} for one in sentence["judged_by"]]
    return {**sentence, "judged_by": judged_by}


def _compared_again(calibrated: Row) -> Row:
    return {**calibrated, "against": list(_wide_comparisons(calibrated.get("against", ())))}


def _wide_comparisons(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        wide = {name: wide_of(row[name]) for name in ("difference", "change")}
        yield {**row, **{name: _as_row(row[name], one) for name, one in wide.items()}, "side": side_of(*wide.values())}


def wide_of(row: Row) -> Estimate:
    """A stored estimate as wide as its seeds."""
    return Estimate(row["value"], row["low"], row["high"], tuple(row["by_seed"])).over_seeds()


def _as_row(row: Row, estimate: Estimate) -> Row:
    return {**row, "low": estimate.low, "high": estimate.high}


# the rate at which DEMix is adapted: §6.1 asks for a tenth of the training's ----------------------------

PAPER_SHARE = 0.1  # of the training's learning rate (DEMix §6.1)


def adapting_rate(budget: Mapping[str, Any]) -> str:
    """`adapted at 0.5 of the training's learning rate (§6.1: 0.1)`; empty at the paper's."""
    training, adapting = (budget.get(name, {}).get("learning_rate") for name in ("training", "adapting"))
    if not training or adapting is None or isclose(adapting / training, PAPER_SHARE, rel_tol=0.01):
        return ""
    return f"adapted at {adapting / training:g} of the training's learning rate (§6.1: {PAPER_SHARE:g})"


_ADAPTED_PLACES = ("Table 6", "Figure 6", "§6.2", "Table 13", "Table 13, Figure 6")  # of the claims on it


def is_adapted(claim: Mapping[str, Any]) -> bool:
    """Whether a claim is about what was adapted."""
    return claim["where"] in _ADAPTED_PLACES
