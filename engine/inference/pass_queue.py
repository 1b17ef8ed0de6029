"""The requests of streams to one model, and the passes that answer them.

Shapes: E experts of a stream, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, RLock
from weakref import WeakSet, finalize

import torch
from torch import Tensor

from engine.inference.cancellation import CancelledError, current_scope
from engine.inference.read_together import read_together
from engine.inference.slot import Slot
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows

_PROMPT_ROWS = 512  # tokens of prompts in a pass beside others, over all of their experts
_PATIENCE = 0.05  # seconds that a pass waits at most for streams of the last one, which are about to come back


@dataclass(eq=False)
class ReadRequest:
    """Tokens [E, T] that a stream wants to be read; what was read of them so far."""

    slot: Slot
    keys: tuple[str, ...]
    ids_ET: Tensor
    is_cancelled: Callable[[], bool] = field(default_factory=current_scope)
    num_read: int = 0
    hidden: list[Tensor] = field(default_factory=list)
    turn: Condition = field(default_factory=Condition)  # the queue's: it is over, or its thread computes the next pass
    logits_E1V: Tensor | None = None  # after the last token, of a request for one token
    error: BaseException | None = None

    @property
    def num_left(self) -> int:
        return self.ids_ET.shape[1] - self.num_read

    @property
    def is_over(self) -> bool:
        return self.error is not None or not self.num_left

    def end_if_cancelled(self) -> bool:
        if self.is_cancelled():
            self.error = CancelledError()
        return self.error is not None


class PassQueue:
    """Requests to one model. One of the threads that wait computes the next pass; so no thread outlives its stream.

    Each thread waits on a condition of its own: to wake all of them at every step takes longer than to sample a token.
    """

    def __init__(self) -> None:
        self._lock = RLock()  # the finalizer of a slot may run in a thread that holds it
        self._complete = Condition(self._lock)  # no stream of the last pass is missing any more
        self._waiting: list[ReadRequest] = []
        self._known: WeakSet[Slot] = WeakSet()
        self._returning: WeakSet[Slot] = WeakSet()  # of the last pass, and not back yet
        self._is_busy = False

    def read(self, model: MultiExpertModel, request: ReadRequest) -> None:
        """Returns when the tokens are read; raises what reading them raised."""
        with self._lock:
            self._add(request)
            try:
                while not request.is_over:
                    if self._is_busy:
                        request.turn.wait()
                    else:
                        self._compute_next(model)
            finally:
                self._waiting = [one for one in self._waiting if one is not request]
                self._call_next()
        if request.error is not None:
            raise request.error

    def _add(self, request: ReadRequest) -> None:
        if request.slot not in self._known:
            self._known.add(request.slot)
            finalize(request.slot, self._wake).atexit = False
        request.turn = Condition(self._lock)
        self._waiting.append(request)
        self._returning.discard(request.slot)
        if not [*self._returning]:
            self._complete.notify()

    def _compute_next(self, model: MultiExpertModel) -> None:
        """Computes a pass, without the lock, and tells the streams whose requests are over."""
        self._is_busy = True
        try:
            self._complete.wait_for(lambda: not [*self._returning], timeout=_PATIENCE)
            self._compute_unlocked(model, self._take())
        finally:
            self._is_busy = False

    def _compute_unlocked(self, model: MultiExpertModel, taken: Sequence[tuple[ReadRequest, int]]) -> None:
        self._lock.release()
        try:
            if taken:
                _compute(model, taken)
        finally:
            self._lock.acquire()
            self._returning = WeakSet(one.slot for one, _ in taken if not one.num_left and len(taken) > 1)
            for one in self._waiting:
                if one.is_over:
                    one.turn.notify()
            self._waiting = [one for one in self._waiting if not one.is_over]

    def _call_next(self) -> None:
        """Has another thread compute, where none does and some wait."""
        if self._waiting and not self._is_busy:
            self._waiting[0].turn.notify()

    def is_only_stream(self, slot: Slot) -> bool:
        """Whether no other stream is there, be it one that waits for its client."""
        with self._lock:
            return all(one is slot for one in [*self._known])

    def num_bytes(self) -> int:
        """Bytes of the keys and values of its streams."""
        with self._lock:
            return sum(slot.num_bytes() for slot in [*self._known])

    def _wake(self) -> None:
        """Nobody waits for a stream that is gone."""
        with self._lock:
            self._complete.notify()

    def _take(self) -> list[tuple[ReadRequest, int]]:
        """The requests of the next pass, and how many tokens of each: all single ones, and a share of the prompts.

        Cancelled requests are over: their streams wait for the rest of a prompt no longer.
        """
        wanted = [one for one in self._waiting if not one.end_if_cancelled()]
        if len(wanted) == 1 and not [*self._returning]:
            return [(one, one.num_left) for one in wanted]
        prompts = sum(len(one.keys) for one in wanted if one.num_left > 1)
        return [(one, min(one.num_left, max(1, _PROMPT_ROWS // max(1, prompts)))) for one in wanted]


def _compute(model: MultiExpertModel, taken: Sequence[tuple[ReadRequest, int]]) -> None:
    """One pass for all; after a failure one for each, so that it harms only the stream that causes it."""
    try:
        _compute_together(model, taken)
    except Exception as error:
        if len(taken) == 1:
            taken[0][0].error = error
            return
        for one in taken:
            _compute(model, [one])


@torch.inference_mode()
def _compute_together(model: MultiExpertModel, taken: Sequence[tuple[ReadRequest, int]]) -> None:
    pieces = [one.ids_ET[:, one.num_read : one.num_read + number] for one, number in taken]
    hidden = read_together(model, [(one.slot, one.keys, ids) for (one, _), ids in zip(taken, pieces, strict=True)])
    single = [place for place, (one, _) in enumerate(taken) if one.ids_ET.shape[1] == 1]
    logits: dict[int, Tensor] = {}
    if single:
        keys = [key for place in single for key in taken[place][0].keys]
        every = model.logits(torch.cat([hidden[place] for place in single]), Rows.one_each(keys))
        logits = dict(zip(single, every.split([len(taken[place][0].keys) for place in single]), strict=True))
    for place, (one, number) in enumerate(taken):
        one.logits_E1V = logits.get(place)
        one.hidden.append(hidden[place])
        one.slot.length += number
        one.num_read += number
