"""The verdict on a claim: the paper's number, ours, the interval, and one of six marks.

A claim is *reproduced* when the whole interval lies on the claim's side of its border and so does the value of every
single seed (the value, not an interval of its own). Where the border is not the paper's own, that is a *weaker claim
reproduced*. *Implied* is what would be either and could not have come out otherwise (`papers/todays_rule.py`). A claim
is *contradicted* when the whole interval lies on the other side, and *undecided* in between. *Not testable here* is
what needs scores, sizes or domains that are not there, and what only floors would answer. A verdict that rests on a
single seed is flagged *one seed*, whatever its mark: its interval knows nothing of how seeds differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from engine.statistics.estimates import Estimate

Mark = Literal["reproduced", "weaker claim reproduced", "implied", "contradicted", "undecided", "not testable here"]
Side = Literal["below", "above", "within"]  # within: nearer to 0 than the border
REPRODUCED: Mark = "reproduced"
WEAKER: Mark = "weaker claim reproduced"
IMPLIED: Mark = "implied"
CONTRADICTED: Mark = "contradicted"
UNDECIDED: Mark = "undecided"
UNTESTABLE: Mark = "not testable here"
MARKS: tuple[Mark, ...] = (REPRODUCED, WEAKER, IMPLIED, CONTRADICTED, UNDECIDED, UNTESTABLE)
ONE_SEED = "one seed"  # flag beside a mark
FLOOR = "A floor: "  # begins the reason where numbers exist and say nothing
Findings = Mapping[str, Any]  # of a replication, as its report stores them
NEAR_CHANCE = 5.0  # percentage points: an accuracy that is no farther above chance says nothing
# The kinds that write reports, for findings that were stored before `JobFacts.writes_report`. A new kind sets that.
_OLD_REPORT_KINDS = ("replicate", "replicate-demix", "replicate-cbtm", "replicate-mode")
NO_SCORES = "Some of its scores are missing: the table of jobs shows which jobs are not done."


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, where it stands, and its numbers."""

    where: str  # table or figure
    sentence: str
    paper: str
    weaker: str = ""  # what is judged instead, where that is less than the sentence says
    topics: tuple[str, ...] = ()  # select the reasons that a report gives if the claim is not reproduced
    model: str = ""  # the model that these reasons are about
    id: str = ""  # by which sentences name it; reports have only its sentence


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim; `value` has its unit and its interval, `by_seed` the value in each seed."""

    claim: Claim
    mark: Mark
    why: str = ""
    ours: str = ""
    estimate: Estimate | None = None
    unit: str = ""
    side: Side | None = None  # of the border, on which the paper's sentence puts the value
    border: float = 0.0
    num_domains: int | None = None  # the sample, where the claim is about domains and not about text

    def as_dict(self) -> dict[str, Any]:
        """The verdict as a report stores it."""
        estimate = asdict(self.estimate) if self.estimate else {"value": None, "low": None, "high": None, "by_seed": ()}
        return {
            **{name: value for name, value in asdict(self.claim).items() if name != "id"},
            "mark": self.mark,
            "why": self.why,
            "is_undecided": self.mark == UNDECIDED,
            "is_one_seed": self.estimate is not None and len(self.estimate.by_seed) == 1,
            "num_domains": self.num_domains,
            "side": self.side,
            "border": self.border,
            "ours": self.ours,
            "unit": self.unit,
            **estimate,
        }


def untestable(claim: Claim, why: str = NO_SCORES, ours: str = "") -> Verdict:
    """The verdict on a claim that cannot be tested."""
    return Verdict(claim, UNTESTABLE, why, ours)


def on_the_floor(verdict: Verdict, why: str) -> Verdict:
    """The verdict where what is compared stands on a floor, which is not a result; itself if `why` is empty."""
    return untestable(verdict.claim, f"{FLOOR}{why}", verdict.ours) if why and verdict.estimate else verdict


def judge(
    side: Side,
    claim: Claim,
    estimate: Estimate | None,
    border: float = 0.0,
    *,
    ours: str = "",
    unit: str = "",
    num_domains: int | None = None,
) -> Verdict:
    """The verdict on a claim that a number is on this side of a border.

    `ours` and `unit` are shown as text; `num_domains` is given where domains are the sample.
    """
    if estimate is None:
        return untestable(claim, ours=ours)
    mark, *sentences = _doubt(side, estimate, border) or (WEAKER if claim.weaker else REPRODUCED,)
    if num_domains is not None and mark == UNDECIDED:
        sentences.append(f"{num_domains} domains cannot show it.")
    if claim.weaker:
        sentences.append(f"Only the weaker claim was judged: {claim.weaker}.")
    return Verdict(claim, mark, " ".join(sentences), ours, estimate, unit, side, border, num_domains)


is_below, is_above, is_within = partial(judge, "below"), partial(judge, "above"), partial(judge, "within")


def _doubt(side: Side, estimate: Estimate, border: float) -> tuple[Mark, str] | None:
    """The mark of a claim that was tested and not reproduced, and why; None of one that was."""
    low, high, by_seed = estimate.low, estimate.high, estimate.by_seed
    if side == "within":
        is_outside, outside = low > border or high < -border, "The full interval lies outside the claimed range."
        is_open, borders = low <= -border or high >= border, f"{border:g} or -{border:g}"
        is_of_every_seed = max(map(abs, by_seed)) < border
    else:
        if side == "above":
            low, high, by_seed, border = -high, -low, tuple(-one for one in by_seed), -border
        is_outside, outside = low > border, "Reversed: the full interval lies on the other side."
        is_open, borders = high >= border, f"{-border if side == 'above' else border:g}"
        is_of_every_seed = max(by_seed) < border
    if is_outside:
        return CONTRADICTED, outside
    if is_open:
        return UNDECIDED, f"Undecided: the interval includes {borders}."
    return None if is_of_every_seed else (UNDECIDED, _NOT_EVERY_SEED)


_NOT_EVERY_SEED = "Undecided: the interval supports the claim, but not every seed does."


def todays_mark(claim: Mapping[str, Any]) -> Mark:
    """The mark of a stored claim, that of an earlier version in the words of today."""
    if claim["mark"] in MARKS:
        return next(mark for mark in MARKS if mark == claim["mark"])
    if claim["mark"] == "reproduced only in a weaker form":
        return WEAKER
    # The first reports have neither this field nor the border that would decide it: only their sentence says it.
    is_undecided = claim.get("is_undecided", str(claim.get("why")).startswith("Undecided"))
    return UNDECIDED if is_undecided else CONTRADICTED


# what a reader of stored findings must know -----------------------------------------------------------


def summary(findings: Findings) -> str:
    """`9 of 24 claims reproduced, 5 contradicted, 3 undecided, 7 not testable here. 3 jobs are not done: 1 failed, …`

    Between them stands how many came out only as a weaker claim and how many could not have come out otherwise, where
    some did; after them how many rest on one seed.
    """
    marks = findings["marks"]
    rest = ", ".join(f"{marks.get(mark, 0)} {mark}" for mark in MARKS[1:] if mark not in _RARE or marks.get(mark))
    sentence = f"{marks[REPRODUCED]} of {sum(marks.values())} claims {REPRODUCED}, {rest}."
    if single := sum(claim.get("is_one_seed", False) for claim in findings["claims"]):
        sentence += f" {single} rest{'s' if single == 1 else ''} on {ONE_SEED}."
    if open_jobs := not_done(findings):
        states = Counter(job["state"] for job in open_jobs)
        how = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        sentence += f" {len(open_jobs)} job{' is' if len(open_jobs) == 1 else 's are'} not done: {how}."
    return sentence


_RARE = (WEAKER, IMPLIED)


def cautions(findings: Findings) -> list[str]:
    """What a reader of the marks must know: how the posterior is read, and where a setting is not the paper's.

    `24 of these claims depend on how the posterior is read: with prefix, …, 5 reproduced, 9 contradicted; …`
    """
    read = [both for claim in findings["claims"] if len(both := claim.get("by_evidence", {})) > 1]
    settings = [words] if (words := findings.get("setting")) else []
    if not read:
        return settings
    counts = {name: Counter(marks[name] for marks in read) for name in read[0]}
    shown = {
        name: [f"{of[mark]} {mark}" for mark in (REPRODUCED, IMPLIED, CONTRADICTED) if of[mark] or mark != IMPLIED]
        for name, of in counts.items()
    }
    listed, (first, second) = [f"with {name} {', '.join(marks)}" for name, marks in shown.items()], counts
    sentence = (
        f"{len(read)} of these claims depend on how the posterior is read, by the paper's text ({first}) or as its "
        f"released code does ({second}): {'; '.join(listed)}."
    )
    return [sentence, *settings]


def not_done(findings: Findings) -> list[Mapping[str, Any]]:
    """The jobs that were not done when the report was written, without the report's own."""
    return [
        job
        for job in findings["jobs"]
        if job["state"] != "done" and not job.get("writes_report", job["kind"] in _OLD_REPORT_KINDS)
    ]
