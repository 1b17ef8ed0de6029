"""How many tokens an expert drafts ahead of its mixture, from how many of its drafts were the mixture's own tokens.

With a share a of accepted drafts, k drafts give 1 + a + … + a^k tokens for a pass of all experts over k + 1 positions
and k passes of one expert. The number with the most tokens per cost is taken; where none beats plain decoding, nothing
is drafted, but for a single draft now and then, ever more seldom, that finds out when that has changed. Counted costs,
not measured times, decide: the same request takes the same steps on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.events import Drafting

MOST_DRAFTS = 8
_FIRST = 2  # drafts that count as judged before any was, half of them accepted
_MEMORY = 10  # judged drafts that the share is of, roughly
_DRAFT_COST = 0.2  # of a pass of one expert beside its share of the weights; a pass of all experts costs 1
_POSITION_COST = 0.06  # of each further position in a pass of all experts
_TRY_AFTER, _MOST_AFTER = 16, 256  # where drafts do not pay: tokens to the next try, doubled by each in turn


@dataclass
class DraftCount:
    """Drafts that were judged, and those that were the mixture's own tokens."""

    num_judged: int = 0
    num_accepted: int = 0


class DraftPace:
    """The drafts of one stream."""

    def __init__(self, count: DraftCount | None = None) -> None:
        self._count = count or DraftCount()
        self._share = 0.5
        self._num_seen = _FIRST
        self._pending: list[int] = []
        self._try_after = _TRY_AFTER // 2
        self._num_plain = self._try_after  # tokens since the last draft; the first is tried at once
        self._own = DraftCount()
        self._why_not = "the answer is too short"

    def number(self, num_experts: int, most: int) -> int:
        """The number of tokens to draft now, `most` at most."""
        best = best_number(self._share, num_experts)
        if not best:
            self._num_plain += 1
            best = int(self._num_plain >= self._try_after)
        return max(0, min(best, most))

    def drafted(self, tokens: Sequence[int]) -> None:
        """Takes the drafts that the next tokens are compared with."""
        if self._num_plain >= self._try_after:
            self._try_after = min(2 * self._try_after, _MOST_AFTER)
        self._pending, self._num_plain = list(tokens), 0

    def refused(self, reason: str) -> None:
        """Takes why nothing could be drafted; empty where nothing was to be."""
        self._why_not = reason or self._why_not

    def drafting(self) -> Drafting:
        """What became of this stream's drafts."""
        own = self._own
        return Drafting(own.num_judged, own.num_accepted, "" if own.num_judged else self._why_not)

    def judge(self, token: int) -> bool:
        """Whether a token of the mixture was drafted. The drafts after one that was not are void."""
        if not self._pending:
            return False
        is_accepted = token == self._pending.pop(0)
        self._num_seen = min(self._num_seen + 1, _MEMORY)
        self._share += (is_accepted - self._share) / self._num_seen
        if is_accepted:
            self._try_after = _TRY_AFTER
        for count in (self._count, self._own):
            count.num_judged += 1
            count.num_accepted += is_accepted
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
