"""One token after another from a mixture, with the weights behind each.

The E awake experts run as E rows of one batch on the same text, each row with its own key-value cache; the gate weighs
their next-token distributions, `combine.mix` sums them, and what is drawn is fed back to all.
Shapes: E experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.errors import MixtureError
from engine.events import Done, Token
from engine.mixing.base import Gate, Stream
from engine.mixing.combine import mix
from engine.models.demix import DemixModel, Rows
from engine.sampling import StopPhrases, draw
from engine.text.tokenizer import Tokenizer

_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × positions × V) held at once while a prompt is read: 64 MiB


class Mixing:
    """Experts of one model at work on one growing text."""

    def __init__(self, model: DemixModel, keys: Sequence[str], gate: Gate) -> None:
        from transformers import DynamicCache

        if not keys:
            raise MixtureError("A mixture must have at least one active expert, but all are off.", "Switch one on.")
        self._model = model
        self._rows = Rows.one_each(keys)
        self._stream: Stream = gate.start()
        self._cache: Any = DynamicCache()
        self._next_EV: Tensor | None = None

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Takes tokens in. For each that could be predicted: (weights [E] before it, log-probabilities [E] it had)."""
        chunk = max(1, _CHUNK_ELEMENTS // (len(self._rows.keys) * self._model.vocab_size))
        for start in range(0, len(ids), chunk):
            yield from self._read_chunk(list(ids[start : start + chunk]))

    def _read_chunk(self, ids: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
        num_experts = len(self._rows.keys)
        input_ET = torch.tensor([ids] * num_experts, device=self._model.device)
        logprobs_ETV = self._model(input_ET, self._rows, self._cache).float().log_softmax(-1)
        for position, token in enumerate(ids):
            if self._next_EV is not None:
                observed_E = self._next_EV[:, token].cpu()
                yield self._stream.log_weights(), observed_E
                self._stream.observe(observed_E)
            self._next_EV = logprobs_ETV[:, position]

    @torch.inference_mode()
    def distribution(self) -> tuple[Tensor, Tensor]:
        """(weights [E] as probabilities, the mixture's log-probabilities [V]) of the next token."""
        if self._next_EV is None:
            raise MixtureError("A mixture must have read at least one token before it predicts one.", "Give a prompt.")
        log_weights_E = self._stream.log_weights()
        return log_weights_E.exp(), mix(log_weights_E, self._next_EV)


def generate(
    model: DemixModel,
    keys: Sequence[str],
    gate: Gate,
    tokenizer: Tokenizer,
    prompt: str,
    sampling: SamplingConfig,
    stop: Sequence[str] = (),
) -> Iterator[Token | Done]:
    """Tokens as they are drawn, then one Done. Closing the iterator stops the work.

    `keys` are the experts that take part, in the order of the gate's weights. Raises MixtureError when none does
    or the prompt is longer than the model's context.
    """
    ids = [tokenizer.bos_id, *tokenizer.encode(prompt)]
    room = model.max_positions - len(ids)
    if room < 1:
        raise MixtureError(
            f"The prompt must be at most {model.max_positions - 1} tokens long, but has {len(ids)} instead.",
            "Shorten it.",
        )
    mixing = Mixing(model, keys, gate)
    for _ in mixing.read(ids):
        pass
    yield from _continue(mixing, keys, tokenizer, sampling, StopPhrases(stop), len(ids), room)


def _continue(
    mixing: Mixing, keys: Sequence[str], tokenizer: Tokenizer, sampling: SamplingConfig,
    phrases: StopPhrases, num_prompt: int, room: int,
) -> Iterator[Token | Done]:  # fmt: skip
    text = tokenizer.stream()
    generator = torch.Generator().manual_seed(sampling.seed) if sampling.seed is not None else None
    limit = min(sampling.max_tokens, room)
    for number in range(limit):
        weights_E, logprobs_V = mixing.distribution()
        token = draw(logprobs_V, sampling, generator)
        if token == tokenizer.bos_id:
            yield Done("stop", num_prompt, number, phrases.rest(text.rest()))
            return
        shown = phrases.push(text.push(token))
        weights = dict(zip(keys, weights_E.tolist(), strict=True))
        yield Token(token, shown, float(logprobs_V[token]), weights)
        if phrases.found:
            yield Done("phrase", num_prompt, number + 1)
            return
        if number + 1 < limit:
            for _ in mixing.read([token]):
                pass
    yield Done("length", num_prompt, limit, phrases.rest(text.rest()))


def read_text(
    model: DemixModel, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, text: str
) -> dict[str, list[Any]]:
    """A text under the mixture: `tokens` as text, the `weights` [token][expert] before each, their `logprobs` (nats).

    `best` holds at each place the token that was the most probable there, as (text, log-probability).
    Raises MixtureError when the text is empty or longer than the model's context.
    """
    ids = tokenizer.encode(text)
    if not ids or len(ids) >= model.max_positions:
        raise MixtureError(
            f"The text must have 1 to {model.max_positions - 1} tokens, but has {len(ids)} instead.",
            "Give more text." if not ids else "Give a shorter text.",
        )
    mixing, spoken = Mixing(model, keys, gate), tokenizer.stream()
    found: dict[str, list[Any]] = {"tokens": [], "weights": [], "logprobs": [], "best": []}
    for token, (log_weights_E, observed_E) in zip(ids, mixing.read([tokenizer.bos_id, *ids]), strict=True):
        _, logprobs_V = mixing.distribution()  # still the one before this token
        best = int(logprobs_V.argmax())
        shown = spoken.push(token)
        found["tokens"].append(shown)
        found["weights"].append(log_weights_E.exp().tolist())
        found["logprobs"].append(float(mix(log_weights_E, observed_E)))
        best_text = shown if best == token else tokenizer.decode([best]) or tokenizer.bos_token
        found["best"].append((best_text, float(logprobs_V[best])))
    return found
