"""A mixture on one growing text: the weights of its experts, and its distribution for the next token.

The active experts of one base run as rows of one batch. The gate weighs the experts' next-token distributions, and
`combine.mix` sums them. For a gate that needs no log-probabilities, a base whose experts all have weight 0 is not run;
it catches up when one gets weight.
Shapes: E experts, A running experts, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.errors import MixtureError
from engine.events import GateWeights
from engine.inference import group_reader
from engine.inference.cancellation import check_cancelled
from engine.inference.ensemble import Models, as_ensemble
from engine.inference.group_reader import GroupReader
from engine.inference.shared_passes import Drafter
from engine.mixing.base import Gate, Stream, mix


class Mixing:
    """A mixture on one growing text."""

    def __init__(self, models: Models, keys: Sequence[str], gate: Gate, evidence_from: int = 0) -> None:
        """`keys` are the active experts in the order of the gate's weights.

        Tokens before the position `evidence_from` are read by the experts, but are no evidence for the gate.
        """
        self._evidence_from = evidence_from
        ensemble = as_ensemble(models, keys)
        self._readers = [GroupReader(group, keys) for group in ensemble.groups]
        self._keys = tuple(keys)
        self._needs_logprobs = gate.needs_logprobs and len(keys) > 1  # the weight of a single expert is 1
        self._unknown_E = _filled(len(keys), 0.0 if gate.needs_logprobs else torch.nan)
        self._stream: Stream = gate.start()
        self._ids: list[int] = []  # the text so far
        self._position = 0  # the first position that the gate has not seen
        self._ahead: list[int] = []  # what some bases have read behind the text

    @property
    def ids(self) -> Sequence[int]:
        """The text so far."""
        return self._ids

    def feed(self, ids: Sequence[int]) -> None:
        """Appends tokens, computing only what the weights after them need.

        Raises CancelledError between two passes once nobody waits for the answer.
        """
        if ids and list(ids) == self._ahead[:1]:
            del self._ahead[0]
        else:
            self._forget_ahead()
        for start in range(0, len(ids), group_reader.CHUNK_POSITIONS):
            check_cancelled()
            self._feed_chunk(ids[start : start + group_reader.CHUNK_POSITIONS])

    def _feed_chunk(self, ids: Sequence[int]) -> None:
        self._ids.extend(ids)
        observed_ET = self._unknown_E[:, None].expand(-1, len(ids))
        if self._needs_logprobs:
            observed_ET = observed_ET.clone()
            for reader in self._readers:
                observed_ET[reader.places] = reader.observe(self._ids, self._position).cpu()
        for observed_E, token in zip(observed_ET.unbind(1), ids, strict=True):
            self._advance(observed_E, token)

    def _forget_ahead(self) -> None:
        if not self._ahead:
            return
        self._ahead = []
        for reader in self._readers:
            reader.crop(len(self._ids))

    def drafter(self, weights_E: Tensor) -> Drafter | str:
        """The expert with the largest weight [E], to read on alone; or why nothing may be read ahead of the text.

        That is so for one expert, for models whose streams cannot share passes (their caches cannot be cut back), and
        while other streams share them: then the other streams fill the passes.
        """
        self._forget_ahead()
        if len(self._keys) < 2:
            return "one expert has no others to draft for"
        leader = int(weights_E.argmax())
        readers = self._running(weights_E.log())
        if reason := next(filter(None, (reader.why_not_ahead(len(self._ids)) for reader in readers)), ""):
            return reason
        return next(reader.drafter(leader) for reader in readers if leader in reader.places)

    def feed_with(self, token: int, drafts: Sequence[int]) -> None:
        """Appends a token, and has the drafts that may follow it read in the same pass."""
        self._forget_ahead()
        running = self._running(self._stream.log_weights())
        observed_E = self._unknown_E.clone()
        if self._needs_logprobs:
            for reader in running:
                observed_E[reader.places] = reader.after(self._ids, self._position - 1)[:, token].cpu()
        self._ids.append(token)
        for reader in running:
            reader.read_ahead([*self._ids, *drafts])
        self._ahead = list(drafts)
        self._advance(observed_E, token)

    def read(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Appends tokens. Yields for each predicted token the log-weights [E] before it and its log-probabilities [E].

        The log-probability of an expert that is not run is NaN.
        """
        for start in range(0, len(ids), group_reader.CHUNK_POSITIONS):
            check_cancelled()
            yield from self._read_chunk(ids[start : start + group_reader.CHUNK_POSITIONS])

    def _read_chunk(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        self._ids.extend(ids)
        if self._needs_logprobs:
            for reader in self._readers:
                reader.read(self._ids)
        for token in ids:
            check_cancelled()
            observed_E = _filled(len(self._keys), torch.nan)
            if self._position:
                log_weights_E = self._stream.log_weights()
                for reader in self._running(log_weights_E):
                    observed_E[reader.places] = reader.after(self._ids, self._position - 1)[:, token].cpu()
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
        log_weights_E = self._stream.log_weights()
        running = self._running(log_weights_E)
        places = [place for reader in running for place in reader.places]
        logprobs = [reader.after(self._ids, self._position - 1) for reader in running]
        logprobs_AV = logprobs[0] if len(logprobs) == 1 else torch.cat(logprobs)
        return log_weights_E.exp(), mix(log_weights_E[places], logprobs_AV)

    def gates(self, weights_E: Tensor) -> dict[str, GateWeights]:
        """The MoDE gates inside experts of non-zero weight, where the next token is predicted."""
        return {
            self._keys[place]: gates
            for reader in self._readers
            for place, gates in reader.gates_after(self._position - 1).items()
            if weights_E[place] > 0
        }

    def _running(self, log_weights_E: Tensor) -> list[GroupReader]:
        """The bases to run: all for a gate that needs log-probabilities, else those with a weight above 0."""
        has_weight = (log_weights_E > -torch.inf).tolist()
        return [
            reader
            for reader in self._readers
            if self._needs_logprobs or any(has_weight[place] for place in reader.places)
        ]


def _filled(length: int, value: float) -> Tensor:
    """A vector in float32, also while torch's default is another: transformers changes it to load a model."""
    return torch.full((length,), value, dtype=torch.float32)
