"""The experts of one base, reading one growing text as rows of one batch, each with its own key-value cache.

Shapes: E experts, T positions, W positions with log-probabilities, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.events import GateWeights
from engine.inference.ensemble import Group
from engine.inference.shared_passes import Drafter, SharedModel, why_not_shared
from engine.inference.slot import Slot
from engine.models.expert_model import ExpertModel, PartWeights
from engine.models.rows import Rows

CHUNK_POSITIONS = 512  # of a forward pass
_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × positions × V) held at once while a text is read: 64 MiB
_FEW_ELEMENTS = 1 << 20  # so few are computed for a whole piece, by the products of the model's own forward pass


@dataclass(frozen=True)
class _Piece:
    """The hidden states that the experts of a base computed for a chunk of text, and the weights of parts.

    Log-probabilities [E, W, V] are those after W of its tokens, from the token `first` on.
    """

    hidden_ETD: Tensor
    inside: Mapping[str, PartWeights]
    first: int
    logprobs_EWV: Tensor

    @property
    def num_tokens(self) -> int:
        return self.hidden_ETD.shape[1]

    def after(self, place: int) -> Tensor | None:
        """The log-probabilities [E, V] after a token, if they are computed."""
        inside = self.first <= place < self.first + self.logprobs_EWV.shape[1]
        return self.logprobs_EWV[:, place - self.first] if inside else None

    def last(self) -> _Piece:
        """The values of the last token only, whose log-probabilities are computed."""
        parts = {key: weights.last() for key, weights in self.inside.items()}
        return _Piece(self.hidden_ETD[:, -1:], parts, 0, self.logprobs_EWV[:, -1:])


class GroupReader:
    """The experts of one base on one growing text, with their caches; reads lazily.

    The head of the model is computed where it is used, with a model that was requested for this piece of text: a reader
    holds no model.
    """

    def __init__(self, group: Group, keys: Sequence[str]) -> None:
        self.places = [keys.index(key) for key in group.keys]  # indices of its experts among the gate's weights
        self._group = group
        self._rows = Rows.one_each(group.keys)
        self._elements = len(keys) * group.vocab_size  # of one position
        self._cache: Any = None  # set at the first read
        self._num_read = 0
        self._before: _Piece | None = None  # the token before the newest piece
        self._piece: _Piece | None = None

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> None:
        """Reads the next piece of the unread text; the token before it stays known."""
        model = self._group.model()
        before = self._piece and self._with(model, self._piece.num_tokens - 1).last()
        self._read(model, ids)
        self._before = before

    def why_not_ahead(self, length: int) -> str:
        """Why nothing may be read ahead of a text of this length; empty where its cache can be cut back to it."""
        model = self._group.model()
        if not isinstance(model, SharedModel) or not isinstance(self._cache, Slot):
            reason = why_not_shared(model) or "its experts are of several methods"
            return f"streams of this base share no passes, as {reason}"
        if self._num_read != length:
            return "experts of weight 0 had not read the text"
        return "" if model.is_only_stream(self._cache) else "other streams filled its passes"

    def drafter(self, leader: int) -> Drafter:
        """The expert with an index among the gate's weights, reading on alone."""
        model = self._group.model()
        assert isinstance(model, SharedModel)
        return model.drafter(self._cache, self.places.index(leader), self._group.keys)

    @torch.inference_mode()
    def read_ahead(self, ids: Sequence[int]) -> None:
        """Reads on to the end of these, which may go beyond the text."""
        self._read(self._group.model(), ids, self._num_read)

    def crop(self, length: int) -> None:
        """Forgets what it has read from this position on."""
        piece, surplus = self._piece, self._num_read - length
        if piece is None or surplus <= 0:
            return
        kept = piece.num_tokens - surplus
        assert kept > 0, "the newest piece begins within the text"
        logprobs_EWV = piece.logprobs_EWV[:, : max(0, kept - piece.first)]
        self._piece = replace(piece, hidden_ETD=piece.hidden_ETD[:, :kept], logprobs_EWV=logprobs_EWV)
        self._cache.crop(length)
        self._num_read = length

    @torch.inference_mode()
    def observe(self, ids: Sequence[int], position: int) -> Tensor:
        """Reads the tokens from a position on; gives the log-probability [E, T] of each, 0 of a text's first."""
        model, tokens = self._group.model(), torch.tensor(ids[position:])
        none_E = torch.zeros(len(self.places), dtype=torch.float32)
        first_E = self.after(ids, position - 1)[:, tokens[0]] if position else none_E
        if self._num_read >= len(ids):  # read ahead
            return first_E[:, None]
        piece = self._read(model, ids, len(ids) - 1)
        if len(tokens) == 1:
            return first_E[:, None]
        targets_ET = tokens[1:].to(model.device).expand(len(self.places), -1)
        if piece.first == 0:  # all are computed
            rest_ET = piece.logprobs_EWV[:, :-1].gather(-1, targets_ET[..., None])[..., 0]
        else:
            rest_ET = model.likelihoods(piece.hidden_ETD[:, :-1], targets_ET, self._rows)
        return torch.cat([first_E[:, None].to(rest_ET.device), rest_ET], 1)

    @torch.inference_mode()
    def after(self, ids: Sequence[int], position: int) -> Tensor:
        """Log-probabilities [E, V] after the token at a position; reads on if needed."""
        while self._num_read <= position:
            self._read(self._group.model(), ids, position)
        piece, place = self._find(position)
        logprobs_EV = piece.after(place)
        if logprobs_EV is None:
            piece = self._computed(self._group.model(), place)
            logprobs_EV = piece.after(place)
        assert logprobs_EV is not None
        return logprobs_EV

    def gates_after(self, position: int) -> dict[int, GateWeights]:
        """The part weights at a position, by the index of each expert with parts; empty if it was not read."""
        if self._piece is None or not self._piece.inside or self._num_read <= position:
            return {}
        piece, place = self._find(position)
        keys = self._group.keys
        return {self.places[keys.index(key)]: weights.at(place) for key, weights in piece.inside.items()}

    def _find(self, position: int) -> tuple[_Piece, int]:
        """The piece with a position that was read, and the index in it."""
        assert self._piece is not None
        place = position - self._num_read + self._piece.num_tokens
        if place >= 0:
            return self._piece, place
        assert self._before is not None
        return self._before, 0

    @torch.inference_mode()
    def _read(self, model: ExpertModel, ids: Sequence[int], wanted: int = -1) -> _Piece:
        """Reads the next piece, and computes log-probabilities after the token at a position if it is in there."""
        piece = list(ids[self._num_read : self._num_read + CHUNK_POSITIONS])
        self._cache = model.new_cache() if self._cache is None else self._cache
        input_ET = torch.tensor([piece] * len(self.places), device=model.device)
        hidden_ETD = model.read(input_ET, self._rows, self._cache)
        self._before, self._piece = None, _Piece(hidden_ETD, model.part_weights(), 0, hidden_ETD[:, :0])
        place = wanted - self._num_read
        self._num_read += len(piece)
        return self._with(model, place) if 0 <= place < len(piece) else self._piece

    def _with(self, model: ExpertModel, place: int) -> _Piece:
        """The newest piece, with the log-probabilities after the token at a place."""
        assert self._piece is not None
        return self._piece if self._piece.after(place) is not None else self._computed(model, place)

    def _computed(self, model: ExpertModel, place: int) -> _Piece:
        """The newest piece, with log-probabilities computed from a place on, in bounded memory."""
        assert self._piece is not None
        hidden_ETD, few = self._piece.hidden_ETD, self._piece.num_tokens * self._elements <= _FEW_ELEMENTS
        first, most = (0, None) if few else (place, max(1, _CHUNK_ELEMENTS // self._elements))
        some_EWD = hidden_ETD[:, first : None if most is None else first + most]
        logprobs_EWV = model.logits(some_EWD, self._rows).float().log_softmax(-1)
        self._piece = replace(self._piece, first=first, logprobs_EWV=logprobs_EWV)
        return self._piece
