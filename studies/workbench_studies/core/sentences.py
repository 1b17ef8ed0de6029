"""Every comparative sentence of a paper, listed before anything is run: what judges it, or why nothing can.

Quotations are short, in the paper's own words; a sentence that the paper repeats in the same sense stands once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from workbench_studies.core.verdicts import Claim, Verdict, untestable


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paper. `judged_by` holds patterns (`*`) of the claims that judge it, as `Table 3: DEMix …`."""

    key: str
    where: str  # section, table or figure
    quote: str
    judged_by: tuple[str, ...] = ()
    why: str = ""  # it cannot be tested here
    printed: str = ""  # the paper's numbers, if it cannot be tested

    def is_judged_by(self, claim: Claim) -> bool:
        """Whether a claim judges this sentence."""
        return any(fnmatchcase(f"{claim.where}: {claim.sentence}", pattern) for pattern in self.judged_by)


def not_testable(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    """The sentences that no arm of a replication decides."""
    return tuple(one for one in sentences if one.why)


def untestable_verdicts(sentences: Iterable[Sentence]) -> list[Verdict]:
    """The verdicts on sentences that no arm of a replication decides."""
    return [
        untestable(Claim(one.where, f"“{one.quote}”", one.printed or "—"), one.why) for one in not_testable(sentences)
    ]


def listed(sentences: Sequence[Sentence], verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Every sentence with the marks of the claims that judge it, or why there are none."""
    return [
        {
            **asdict(one),
            "judged_by": [
                {"where": verdict.claim.where, "sentence": verdict.claim.sentence, "mark": verdict.mark}
                for verdict in verdicts
                if one.is_judged_by(verdict.claim)
            ],
        }
        for one in sentences
    ]
