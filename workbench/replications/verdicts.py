"""The verdict on a claim: the paper's number, ours, the interval, and one of four marks.

A claim is *reproduced* when the whole interval lies on the claim's side of its border and so does the value of every
seed by itself (the value, not an interval of its own); else it is *not reproduced*, also where the interval holds the
border, and the reason says which. Where less is judged than the paper says, a claim that comes out is *reproduced only
in a weaker form*. *Not testable here* is what needs scores, sizes or domains that are not there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from engine.statistics.estimates import Estimate

Mark = Literal["reproduced", "reproduced only in a weaker form", "not reproduced", "not testable here"]
Side = Literal["below", "above", "within"]  # within: nearer to 0 than the border
REPRODUCED: Mark = "reproduced"
WEAKER: Mark = "reproduced only in a weaker form"
NOT_REPRODUCED: Mark = "not reproduced"
UNTESTABLE: Mark = "not testable here"
MARKS: tuple[Mark, ...] = (REPRODUCED, WEAKER, NOT_REPRODUCED, UNTESTABLE)
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


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim; `value` has its unit and its interval, `by_seed` the value in each seed."""

    claim: Claim
    mark: Mark
    why: str = ""
    ours: str = ""
    estimate: Estimate | None = None
    unit: str = ""
    is_undecided: bool = False  # not reproduced, but not reversed either: more seeds or text could decide it
    side: Side | None = None  # of the border, on which the paper's sentence puts the value
    border: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The verdict as a report stores it."""
        estimate = asdict(self.estimate) if self.estimate else {"value": None, "low": None, "high": None, "by_seed": ()}
        return {
            **asdict(self.claim),
            "mark": self.mark,
            "why": self.why,
            "is_undecided": self.is_undecided,
            "ours": self.ours,
            "unit": self.unit,
            "side": self.side,
            "border": self.border,
            **estimate,
        }


@dataclass(frozen=True)
class _Doubt:
    """Why a claim that could be tested was not reproduced."""

    why: str
    is_undecided: bool = True


_NOT_EVERY_SEED = _Doubt("Undecided: the interval supports the claim, but not every seed does.")


def _judged(claim: Claim, doubt: _Doubt | None, ours: str, estimate: Estimate, unit: str) -> Verdict:
    """The verdict on a claim that could be tested; it was reproduced if there is no doubt."""
    mark = NOT_REPRODUCED if doubt else WEAKER if claim.weaker else REPRODUCED
    less = f"Only the weaker claim was judged: {claim.weaker}." if claim.weaker else ""
    why = f"{doubt.why if doubt else ''} {less}".strip()
    return Verdict(claim, mark, why, ours, estimate, unit, is_undecided=doubt is not None and doubt.is_undecided)


def untestable(claim: Claim, why: str = NO_SCORES, ours: str = "") -> Verdict:
    """The verdict on a claim that cannot be tested."""
    return Verdict(claim, UNTESTABLE, why, ours)


def is_below(
    claim: Claim, estimate: Estimate | None, border: float = 0.0, *, ours: str = "", unit: str = ""
) -> Verdict:
    """The verdict on a claim that a number is below a border."""
    if estimate is None:
        return untestable(claim, ours=ours)
    verdict = _judged(claim, _doubt(estimate, border, border), ours, estimate, unit)
    return replace(verdict, side="below", border=border)


def is_above(
    claim: Claim, estimate: Estimate | None, border: float = 0.0, *, ours: str = "", unit: str = ""
) -> Verdict:
    """The verdict on a claim that a number is above a border."""
    if estimate is None:
        return untestable(claim, ours=ours)
    turned = Estimate(-estimate.value, -estimate.high, -estimate.low, tuple(-one for one in estimate.by_seed))
    verdict = _judged(claim, _doubt(turned, -border, border), ours, estimate, unit)
    return replace(verdict, side="above", border=border)


def is_within(claim: Claim, estimate: Estimate | None, border: float, *, ours: str = "", unit: str = "") -> Verdict:
    """The verdict on a claim that a number is nearer to 0 than a border, whichever way it differs."""
    if estimate is None:
        return untestable(claim, ours=ours)
    doubt = None
    if estimate.low > border or estimate.high < -border:
        doubt = _Doubt("The full interval lies outside the claimed range.", is_undecided=False)
    elif estimate.low <= -border or estimate.high >= border:
        doubt = _Doubt(f"Undecided: the interval includes {border:g} or -{border:g}.")
    elif max(map(abs, estimate.by_seed)) >= border:
        doubt = _NOT_EVERY_SEED
    return replace(_judged(claim, doubt, ours, estimate, unit), side="within", border=border)


def _doubt(estimate: Estimate, border: float, shown: float) -> _Doubt | None:
    """Why a number does not count as below the border, which is printed as `shown`; None if it does."""
    if estimate.low > border:
        return _Doubt("Reversed: the full interval lies on the other side.", is_undecided=False)
    if estimate.high >= border:
        return _Doubt(f"Undecided: the interval includes {shown:g}.")
    return _NOT_EVERY_SEED if max(estimate.by_seed) >= border else None
