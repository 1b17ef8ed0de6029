"""A mixture whose experts run in another program, which draws the tokens: its weights, from what each expert gave them.

The arithmetic is that of `engine.inference.mixing`: the same gates, on log-probabilities in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from engine.inference.generate import Drawn
from engine.mixing.base import Gate, mix


@dataclass(frozen=True)
class RowToken:
    """The next token of a row, and the log-probability (nats) that the row's own model gave it."""

    id: int
    logprob: float


class RemoteMixture:
    """A gate on one growing text."""

    def __init__(self, gate: Gate, num_experts: int) -> None:
        self._gate, self._num_experts = gate, num_experts
        self._stream = gate.start()

    def read_prompt(
        self, ids: Sequence[int], evidence_from: int, read: Callable[[], list[list[float]]]
    ) -> list[list[float]]:
        """Reads a prompt; gives the log-probabilities (token x expert) that it needed for that, by `read`.

        Tokens before the position `evidence_from` do not count as evidence.
        """
        self._stream.begin(ids[0])
        needs_them = self._gate.needs_logprobs
        observed = read() if needs_them and self._num_experts > 1 and len(ids) > 1 else []
        unknown_E = torch.full((self._num_experts,), 0.0 if needs_them else torch.nan)  # the weight of one expert is 1
        for position, token in enumerate(ids[1:], 1):
            if position >= evidence_from:
                self._stream.observe(torch.tensor(observed[position - 1]) if observed else unknown_E, token)
        return observed

    def leader(self) -> int:
        """The index of the expert with the greatest weight."""
        return int(self._stream.log_weights().argmax())

    def drawn(self, rows: Iterator[Sequence[RowToken]]) -> Iterator[Drawn]:
        """The tokens of a group of rows, which are the same in each row, with the weights behind each."""
        for row in rows:
            log_weights_E = self._stream.log_weights()
            observed_E = torch.tensor([one.logprob for one in row], dtype=torch.float32)
            token = row[0].id
            yield Drawn(token, float(mix(log_weights_E, observed_E)), log_weights_E.exp().tolist(), {}, ())
            self._stream.observe(observed_E, token)
