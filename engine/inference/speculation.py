"""How many tokens an expert drafts ahead of its mixture, from how many of its drafts were the mixture's own tokens.

With a share a of accepted drafts, k drafts give 1 + a + … + a^k tokens for a pass of all experts over k + 1 positions
and k passes of one expert. The number with the most tokens per cost is taken; where none beats plain decoding, nothing
is drafted, but for a try now and then that finds out when that has changed. Counted costs, not measured times, decide:
the same request takes the same steps on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_DRAFTS = 8
_FIRST_SHARE = 0.75  # of accepted drafts, before any was seen
_MEMORY = 0.9  # what a judged draft leaves of the share before
_DRAFT_COST = 0.1  # of a pass of one expert beside its share of the weights; a pass of all experts costs 1
_POSITION_COST = 0.06  # of each further position in a pass of all experts
_TRY_EVERY, _TRY = 16, 2  # where drafts do not pay: so many tokens apart, so many drafts


@dataclass
class DraftCount:
    """Drafts that were judged, and those that were the mixture's own tokens."""

    num_judged: int = 0
    num_accepted: int = 0


class Pace:
    """The drafts of one stream."""

    def __init__(self, count: DraftCount | None = None) -> None:
        self._count = count or DraftCount()
        self._share = _FIRST_SHARE
        self._pending: list[int] = []
        self._num_plain = 0  # tokens since the last draft

    def number(self, num_experts: int, most: int) -> int:
        """The number of tokens to draft now, `most` at most."""
        best = best_number(self._share, num_experts)
        if not best:
            self._num_plain += 1
            best = _TRY if self._num_plain >= _TRY_EVERY else 0
        return max(0, min(best, most))

    def drafted(self, tokens: Sequence[int]) -> None:
        """Takes the drafts that the next tokens are compared with."""
        self._pending, self._num_plain = list(tokens), 0

    def judge(self, token: int) -> bool:
        """Whether a token of the mixture was drafted. The drafts after one that was not are void."""
        if not self._pending:
            return False
        is_accepted = token == self._pending.pop(0)
        self._share = _MEMORY * self._share + (1 - _MEMORY) * is_accepted
        self._count.num_judged += 1
        self._count.num_accepted += is_accepted
        if not is_accepted:
            self._pending = []
        return is_accepted


def best_number(share: float, num_experts: int) -> int:
    """The number of drafts with the most expected tokens per cost when this share is accepted; 0: none pays."""
    draft_cost = 1 / num_experts + _DRAFT_COST

    def speed(number: int) -> float:
        tokens = sum(share**accepted for accepted in range(number + 1))
        return tokens / (1 + number * (draft_cost + _POSITION_COST))

    return max(range(MOST_DRAFTS + 1), key=speed)
