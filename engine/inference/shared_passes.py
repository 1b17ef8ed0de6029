"""Streams that read with one model at the same time share its forward passes.

What a stream decides (weights, sampling, where to stop) stays in its own thread; here is only who computes. A stream
that needs a forward pass waits in a queue; one of those that wait computes a pass for all of them. Streams join and
leave between passes. A long prompt is read in pieces beside tokens of others.

Whether a model can do this is tried, as families differ: those with recurrent layers, windows or an attention of their
own decode alone, as do experts with positions before the text and experts with parts.

Shapes: B rows, each with an expert of its own; E experts of a stream, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Never
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from engine.inference.pass_queue import PassQueue, ReadRequest
from engine.inference.read_together import read_together, shared_attention, why_separate
from engine.inference.slot import Slot
from engine.models.composite import CompositeModel
from engine.models.expert_model import ExpertModel
from engine.models.likelihoods import TokenScores
from engine.models.multi_expert import MultiExpertModel
from engine.models.rows import Rows


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
    """A model that reads in shared passes."""

    def __init__(self, model: MultiExpertModel, queue: PassQueue) -> None:
        self._model, self._queue = model, queue
        self._newest: ReadRequest | None = None

    @property
    def keys(self) -> list[str]:
        return self._model.keys

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def max_positions(self) -> int:
        return self._model.max_positions

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

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

    def likelihoods(self, hidden_BTD: Tensor, targets_BT: Tensor, rows: Rows) -> Tensor:
        """Log-likelihood [B, T] of each target after hidden states."""
        return self._model.likelihoods(hidden_BTD, targets_BT, rows)

    def token_scores(self, input_ids_BT: Tensor, targets_BT: Tensor, rows: Rows) -> TokenScores:
        """Log-likelihood and hit [B, T] of each target."""
        return self._model.token_scores(input_ids_BT, targets_BT, rows)

    def is_only_stream(self, slot: Slot) -> bool:
        """Whether no other stream reads with this model."""
        return self._queue.is_only_stream(slot)

    def drafter(self, slot: Slot, place: int, keys: Sequence[str]) -> Drafter:
        """The expert of a slot's row, reading on alone."""
        return Drafter(self._model, slot.row(place), keys[place])

    def new_cache(self) -> Slot:
        """An empty slot, which any model with the same base can go on with."""
        return Slot()

    def part_weights(self) -> Mapping[str, Never]:
        """None: these experts have no parts."""
        return {}


class Drafter:
    """One expert that reads on alone, behind what a stream has read; the stream does not see it."""

    def __init__(self, model: MultiExpertModel, slot: Slot, key: str) -> None:
        self._model, self._slot, self._key = model, slot, key

    @torch.inference_mode()
    def after(self, token: int) -> Tensor:
        """Reads a token; gives the log-probabilities [V] of the next."""
        token_11 = torch.tensor([[token]], device=self._model.device)
        (hidden_11D,) = read_together(self._model, [(self._slot, [self._key], token_11)])
        self._slot.length += 1
        return self._model.logits(hidden_11D, Rows.one_each([self._key]))[0, 0].float().log_softmax(-1)
