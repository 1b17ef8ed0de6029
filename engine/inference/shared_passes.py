"""Streams that read with one model at the same time share its forward passes.

What a stream decides (weights, sampling, where to stop) stays in its own thread; here is only who computes. A stream
that needs a forward pass waits in a queue; one of those that wait computes a pass for all of them. Streams join and
leave between passes. A long prompt is read in pieces together with tokens of others.

Whether a model can do this is tried, as families differ: those with recurrent layers, windows or an attention of their
own decode separately, as do experts with positions before the text and experts with parts.

Shapes: B rows, each with an expert of its own; E experts of a stream, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, finalize

import torch
from torch import Tensor

from engine.inference.cancellation import CancelledError, current_scope
from engine.inference.read_together import Slot, read_together, shared_attention, why_separate
from engine.models.expert_model import CompositeModel, ExpertModel
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows

_PROMPT_ROWS = 512  # tokens of prompts in a pass with others, over all of their experts
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
                if self._waiting and not self._is_busy:
                    self._waiting[0].turn.notify()  # computes in place of this thread
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
            taken = self._take()
            self._lock.release()
            try:
                if taken:
                    _compute(model, taken)
            finally:
                self._lock.acquire()
                self._returning = WeakSet(
                    request.slot for request, _ in taken if not request.num_left and len(taken) > 1
                )
                for request in self._waiting:
                    if request.is_over:
                        request.turn.notify()
                self._waiting = [request for request in self._waiting if not request.is_over]
        finally:
            self._is_busy = False

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
        for request in self._waiting:
            if request.is_cancelled():
                request.error = CancelledError()
        wanted = [request for request in self._waiting if request.error is None]
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
        for request in taken:
            _compute(model, [request])


@torch.inference_mode()
def _compute_together(model: MultiExpertModel, taken: Sequence[tuple[ReadRequest, int]]) -> None:
    pieces = [request.ids_ET[:, request.num_read : request.num_read + number] for request, number in taken]
    hidden = read_together(
        model, [(request.slot, request.keys, ids) for (request, _), ids in zip(taken, pieces, strict=True)]
    )
    single = [index for index, (request, _) in enumerate(taken) if request.ids_ET.shape[1] == 1]
    logits: dict[int, Tensor] = {}
    if single:
        keys = [key for index in single for key in taken[index][0].keys]
        every = model.logits(torch.cat([hidden[index] for index in single]), Rows.one_each(keys))
        logits = dict(zip(single, every.split([len(taken[index][0].keys) for index in single]), strict=True))
    for index, (request, number) in enumerate(taken):
        request.logits_E1V = logits.get(index)
        request.hidden.append(hidden[index])
        request.slot.length += number
        request.num_read += number


class SharedPasses:
    """The queues of all models of a process."""

    def __init__(self) -> None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        ALL_ATTENTION_FUNCTIONS["sdpa"] = shared_attention
        self._queues: WeakKeyDictionary[MultiExpertModel, PassQueue | None] = WeakKeyDictionary()
        self._lock = Lock()

    def view(self, model: ExpertModel) -> ExpertModel:
        """The same experts, reading together with other streams where their model can."""
        if isinstance(model, CompositeModel):
            return CompositeModel([self.view(one) for one in model.models])
        if not isinstance(model, MultiExpertModel):
            return model
        with self._lock:
            if model not in self._queues:
                self._queues[model] = None if why_separate(model) else PassQueue()
            queue = self._queues[model]
        return model if queue is None else SharedModel(model, queue)

    def num_bytes(self) -> int:
        """Bytes of the keys and values of all streams."""
        with self._lock:
            queues = [queue for queue in self._queues.values() if queue is not None]
        return sum(queue.num_bytes() for queue in queues)


def why_not_shared(model: ExpertModel) -> str:
    """Why streams of such a view share no passes; empty where all of its experts do."""
    if isinstance(model, SharedModel):
        return ""
    if isinstance(model, CompositeModel):
        return next(filter(None, map(why_not_shared, model.models)), "")
    reason = why_separate(model) if isinstance(model, MultiExpertModel) else "its experts have parts"
    return reason or "the process does not ask for it"


class SharedModel:
    """An `ExpertModel` that reads in shared passes; all else is done by the model itself."""

    def __init__(self, model: MultiExpertModel, queue: PassQueue) -> None:
        self._model, self._queue = model, queue
        self._newest: ReadRequest | None = None
        self.keys, self.device = model.keys, model.device
        self.max_positions, self.vocab_size = model.max_positions, model.vocab_size
        self.likelihoods, self.token_scores = model.likelihoods, model.token_scores
        self.part_weights = model.part_weights

    def __call__(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """Logits [B, T, V]."""
        return self.logits(self.read(input_ids_BT, rows, cache), rows)

    def read(self, input_ids_BT: Tensor, rows: Rows, cache: Any = None) -> Tensor:
        """The last hidden states [B, T, D], of rows that each take an expert of their own."""
        if not isinstance(cache, Slot):
            return self._model.read(input_ids_BT, rows, cache)
        self._newest = ReadRequest(cache, rows.keys, input_ids_BT)
        self._queue.read(self._model, self._newest)
        return torch.cat(self._newest.hidden, 1) if len(self._newest.hidden) > 1 else self._newest.hidden[0]

    def logits(self, hidden_BTD: Tensor, rows: Rows) -> Tensor:
        """Logits [B, T, V]; those of a single new token are there already."""
        newest = self._newest
        if newest is None or newest.logits_E1V is None or not hidden_BTD.is_set_to(newest.hidden[0]):
            return self._model.logits(hidden_BTD, rows)
        return newest.logits_E1V

    def is_only_stream(self, slot: Slot) -> bool:
        """Whether no other stream reads with this model."""
        return self._queue.is_only_stream(slot)

    def drafter(self, slot: Slot, index: int, keys: Sequence[str]) -> Drafter:
        """The expert of a slot's row, reading on without the others."""
        return Drafter(self._model, slot.row(index), keys[index])

    def new_cache(self) -> Slot:
        """An empty slot, which any model with the same base can go on with."""
        return Slot()


class Drafter:
    """One expert that reads on without the others, behind what a stream has read; the stream does not see it."""

    def __init__(self, model: MultiExpertModel, slot: Slot, key: str) -> None:
        self._model, self._slot, self._key = model, slot, key

    @torch.inference_mode()
    def after(self, token: int) -> Tensor:
        """Reads a token; gives the log-probabilities [V] of the next."""
        token_11 = torch.tensor([[token]], device=self._model.device)
        (hidden_11D,) = read_together(self._model, [(self._slot, [self._key], token_11)])
        self._slot.length += 1
        return self._model.logits(hidden_11D, Rows.one_each([self._key]))[0, 0].float().log_softmax(-1)
