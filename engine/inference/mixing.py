"""A mixture on one growing text: the weights of its experts, and its distribution for the next token.

The active experts of one base run as rows of one batch. The gate weighs the experts' next-token distributions, and
`base.mix` sums them. For a gate that needs no log-probabilities, a base whose experts all have weight 0 is not run;
it catches up when one gets weight.
Shapes: E experts, A running experts, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.errors import MixtureError
from engine.events import GateWeights
from engine.inference.cancellation import check_cancelled
from engine.inference.ensemble import Group, Models, as_ensemble
from engine.inference.read_together import Slot
from engine.inference.shared_passes import Drafter, SharedModel, why_not_shared
from engine.mixing.base import Gate, Stream, mix
from engine.models.expert_model import ExpertModel, PartWeights
from engine.models.rows import Rows

CHUNK_POSITIONS = 512  # of a forward pass
_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × positions × V) held at once while a text is read: 64 MiB
_FEW_ELEMENTS = 1 << 20  # so few are computed for a whole piece, by the products of the model's own forward pass


@dataclass(frozen=True)
class _ReadChunk:
    """The hidden states that the experts of a base computed for a chunk of text, and their MoDE part weights.

    Log-probabilities [E, W, V] are those after W of its tokens, from the token `first` on.
    """

    hidden_ETD: Tensor
    inside: Mapping[str, PartWeights]
    first: int
    logprobs_EWV: Tensor

    @property
    def num_tokens(self) -> int:
        return self.hidden_ETD.shape[1]

    def after(self, index: int) -> Tensor | None:
        """The log-probabilities [E, V] after a token, if they are computed."""
        inside = self.first <= index < self.first + self.logprobs_EWV.shape[1]
        return self.logprobs_EWV[:, index - self.first] if inside else None

    def last(self) -> _ReadChunk:
        """The values of the last token only, whose log-probabilities are computed."""
        parts = {key: weights.last() for key, weights in self.inside.items()}
        return _ReadChunk(self.hidden_ETD[:, -1:], parts, 0, self.logprobs_EWV[:, -1:])


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
        self._before: _ReadChunk | None = None  # the token before the newest piece
        self._piece: _ReadChunk | None = None

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> None:
        """Reads the next piece of the unread text; the token before it stays known."""
        model = self._group.model()
        before = self._piece and self._with_logprobs(model, self._piece.num_tokens - 1).last()
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
        """The expert with an index among the gate's weights, reading on without the others."""
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
        piece, index = self._find(position)
        logprobs_EV = piece.after(index)
        if logprobs_EV is None:
            logprobs_EV = self._with_logprobs(self._group.model(), index).after(index)
        assert logprobs_EV is not None
        return logprobs_EV

    def gates_after(self, position: int) -> dict[int, GateWeights]:
        """The part weights at a position, by the index of each MoDE expert; empty if it was not read."""
        if self._piece is None or not self._piece.inside or self._num_read <= position:
            return {}
        piece, index = self._find(position)
        keys = self._group.keys
        return {self.places[keys.index(key)]: weights.at(index) for key, weights in piece.inside.items()}

    def _find(self, position: int) -> tuple[_ReadChunk, int]:
        """The piece with a position that was read, and the index in it."""
        assert self._piece is not None
        index = position - self._num_read + self._piece.num_tokens
        if index >= 0:
            return self._piece, index
        assert self._before is not None
        return self._before, 0

    @torch.inference_mode()
    def _read(self, model: ExpertModel, ids: Sequence[int], wanted: int = -1) -> _ReadChunk:
        """Reads the next piece, and computes log-probabilities after the token at a position if it is in there."""
        piece = list(ids[self._num_read : self._num_read + CHUNK_POSITIONS])
        self._cache = model.new_cache() if self._cache is None else self._cache
        input_ET = torch.tensor(piece, device=model.device).expand(len(self.places), -1)  # one text
        hidden_ETD = model.read(input_ET, self._rows, self._cache)
        self._before, self._piece = None, _ReadChunk(hidden_ETD, model.part_weights(), 0, hidden_ETD[:, :0])
        index = wanted - self._num_read
        self._num_read += len(piece)
        return self._with_logprobs(model, index) if 0 <= index < len(piece) else self._piece

    def _with_logprobs(self, model: ExpertModel, index: int) -> _ReadChunk:
        """The newest piece, with log-probabilities from an index on: computed where they are not, in bounded memory."""
        assert self._piece is not None
        if self._piece.after(index) is not None:
            return self._piece
        hidden_ETD, few = self._piece.hidden_ETD, self._piece.num_tokens * self._elements <= _FEW_ELEMENTS
        first, most = (0, None) if few else (index, max(1, _CHUNK_ELEMENTS // self._elements))
        some_EWD = hidden_ETD[:, first : None if most is None else first + most]
        logprobs_EWV = model.logits(some_EWD, self._rows).float().log_softmax(-1)
        self._piece = replace(self._piece, first=first, logprobs_EWV=logprobs_EWV)
        return self._piece


class Mixing:
    """A mixture on one growing text."""

    def __init__(self, models: Models, keys: Sequence[str], gate: Gate, evidence_from: int = 0) -> None:
        """`keys` are the active experts in the order of the gate's weights.

        Tokens before the position `evidence_from` are read by the experts, but do not count as evidence for the gate.
        """
        self._evidence_from = evidence_from
        ensemble = as_ensemble(models, keys)
        self._readers = [GroupReader(group, keys) for group in ensemble.groups]
        self._keys = tuple(keys)
        self._needs_logprobs = gate.needs_logprobs and len(keys) > 1  # the weight of a single expert is 1
        self._unknown_E = _float32_vector(len(keys), 0.0 if gate.needs_logprobs else torch.nan)
        self._stream: Stream = gate.start()
        self.ids: list[int] = []  # the text so far
        self._position = 0  # the first position that the gate has not seen
        self._ahead: list[int] = []  # what some bases have read behind the text

    def feed(self, ids: Sequence[int]) -> None:
        """Appends tokens, computing only what the weights after them need.

        Raises CancelledError between two passes once nobody waits for the answer.
        """
        if ids and list(ids) == self._ahead[:1]:
            del self._ahead[0]
        else:
            self._forget_ahead()
        for chunk in self._chunks(ids):
            observed_ET = self._unknown_E[:, None].expand(-1, len(chunk))
            if self._needs_logprobs:
                observed_ET = observed_ET.clone()
                for reader in self._readers:
                    observed_ET[reader.places] = reader.observe(self.ids, self._position).cpu()
            for observed_E, token in zip(observed_ET.unbind(1), chunk, strict=True):
                self._advance(observed_E, token)

    def _chunks(self, ids: Sequence[int]) -> Iterator[Sequence[int]]:
        """Appends tokens to the text, as many at a time as a pass reads."""
        for start in range(0, len(ids), CHUNK_POSITIONS):
            check_cancelled()
            chunk = ids[start : start + CHUNK_POSITIONS]
            self.ids.extend(chunk)
            yield chunk

    def _forget_ahead(self) -> None:
        if not self._ahead:
            return
        self._ahead = []
        for reader in self._readers:
            reader.crop(len(self.ids))

    def drafter(self, weights_E: Tensor) -> Drafter | str:
        """The expert with the largest weight [E], to read on separately; or why nothing may be read ahead of the text.

        That is so for one expert, for models whose streams cannot share passes (their caches cannot be cut back), and
        while other streams share them: then the other streams fill the passes.
        """
        self._forget_ahead()
        if len(self._keys) < 2:
            return "one expert has no others to draft for"
        leader = int(weights_E.argmax())
        readers = self._running(weights_E.log())
        if reason := next(filter(None, (reader.why_not_ahead(len(self.ids)) for reader in readers)), ""):
            return reason
        return next(reader.drafter(leader) for reader in readers if leader in reader.places)

    def feed_with(self, token: int, drafts: Sequence[int]) -> None:
        """Appends a token, and has the drafts that may follow it read in the same pass."""
        self._forget_ahead()
        running = self._running(self._stream.log_weights())
        observed_E = self._unknown_E.clone()
        if self._needs_logprobs:
            for reader in running:
                observed_E[reader.places] = reader.after(self.ids, self._position - 1)[:, token].cpu()
        self.ids.append(token)
        for reader in running:
            reader.read_ahead([*self.ids, *drafts])
        self._ahead = list(drafts)
        self._advance(observed_E, token)

    def read(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Appends tokens. Yields for each predicted token the log-weights [E] before it and its log-probabilities [E].

        The log-probability of an expert that is not run is NaN.
        """
        for chunk in self._chunks(ids):
            if self._needs_logprobs:
                for reader in self._readers:
                    reader.read(self.ids)
            for token in chunk:
                check_cancelled()
                observed_E = _float32_vector(len(self._keys), torch.nan)
                if self._position:
                    log_weights_E = self._stream.log_weights()
                    for reader in self._running(log_weights_E):
                        observed_E[reader.places] = reader.after(self.ids, self._position - 1)[:, token].cpu()
                    yield log_weights_E, observed_E
                self._advance(observed_E, token)

    def _advance(self, observed_E: Tensor, token: int) -> None:
        if not self._position:
            self._stream.begin(token)
        elif self._position >= self._evidence_from:
            self._stream.observe(observed_E, token)
        self._position += 1

    @torch.inference_mode()
    def distribution(self) -> tuple[Tensor, Tensor]:
        """The weights [E] and the mixture's log-probabilities [V] for the next token."""
        if not self._position:
            raise MixtureError("The mixture has read no token yet.", "Give a prompt.")
        return self._distribution(self._stream.log_weights())

    @torch.inference_mode()
    def drawn(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The same for one expert alone, which is drawn by the weights.

        A token from it has the law of the mixture. Only for gates that need no log-probabilities: others run all.
        """
        weights_E = self._stream.log_weights().exp()
        chosen = torch.multinomial(weights_E.cpu(), 1, generator=generator)
        return self._distribution(torch.full_like(weights_E, -torch.inf).index_fill(0, chosen, 0.0))

    def _distribution(self, log_weights_E: Tensor) -> tuple[Tensor, Tensor]:
        running = self._running(log_weights_E)
        places = [index for reader in running for index in reader.places]
        logprobs = [reader.after(self.ids, self._position - 1) for reader in running]
        logprobs_AV = logprobs[0] if len(logprobs) == 1 else torch.cat(logprobs)
        return log_weights_E.exp(), mix(log_weights_E[places], logprobs_AV)

    def gates(self, weights_E: Tensor) -> dict[str, GateWeights]:
        """The gates inside experts of non-zero weight, where the next token is predicted."""
        return {
            self._keys[index]: gates
            for reader in self._readers
            for index, gates in reader.gates_after(self._position - 1).items()
            if weights_E[index] > 0
        }

    def _running(self, log_weights_E: Tensor) -> list[GroupReader]:
        """The bases to run: all for a gate that needs log-probabilities, else those with a weight above 0."""
        has_weight = (log_weights_E > -torch.inf).tolist()
        return [
            reader
            for reader in self._readers
            if self._needs_logprobs or any(has_weight[index] for index in reader.places)
        ]


def _float32_vector(length: int, value: float) -> Tensor:
    """A vector in float32, also while torch's default is another: transformers changes it to load a model."""
    return torch.full((length,), value, dtype=torch.float32)
