"""One token after another from a mixture, with the weights behind each.

The awake experts of one base run as rows of one batch on the same text, each row with its own key-value cache; other
bases stand beside it. The gate weighs the experts' next-token distributions, `combine.mix` sums them, and what is drawn
is fed back to all. Where a gate looks at the text alone, a base none of whose experts has weight sleeps: it reads
nothing, and catches up in one go when it wakes.
Shapes: E experts, A awake experts, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.errors import ContextLengthExceeded, MixtureError
from engine.events import Done, Echo, GateWeights, Token
from engine.inference.ensemble import Group, Models, as_ensemble
from engine.inference.prompt import Prompt, encode_prompt, require_readable, require_room
from engine.inference.sampling import StopPhrases, make_generator, sample_token
from engine.mixing.base import Gate, Stream
from engine.mixing.combine import mix
from engine.models.expert_model import PartWeights
from engine.models.rows import Rows
from engine.text.tokenizer import TextStream, Tokenizer

_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × positions × V) held at once while a prompt is read: 64 MiB


class Mixing:
    """Experts at work on one growing text."""

    def __init__(self, models: Models, keys: Sequence[str], gate: Gate) -> None:
        """`keys` are the experts that take part, in the order of the gate's weights."""
        ensemble = as_ensemble(models, keys)
        self._chunk = max(1, _CHUNK_ELEMENTS // (len(keys) * ensemble.vocab_size))
        self._readers = [_Reader(group, keys, self._chunk) for group in ensemble.groups]
        self._keys, self._listens = tuple(keys), gate.needs_logprobs
        self._stream: Stream = gate.start()
        self._ids: list[int] = []  # the text as far as it is known
        self._position = 0  # of the next token that the gate has not seen

    def feed(self, ids: Sequence[int]) -> None:
        """Takes tokens in, and computes no more than the weights after them need."""
        if self._listens:
            for _ in self.read(ids):
                pass
            return
        unheard_E = torch.full((len(self._keys),), torch.nan)
        self._ids.extend(ids)
        for token in ids:
            self._advance(unheard_E, token)

    def read(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Takes tokens in. For each that could be predicted: (weights [E] before it, log-probabilities [E] it had).

        The weights are logarithms; of an expert that sleeps the log-probability is no number.
        """
        for start in range(0, len(ids), self._chunk):
            yield from self._read_chunk(ids[start : start + self._chunk])

    def _read_chunk(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        self._ids.extend(ids)
        if self._listens:
            for reader in self._readers:
                reader.read(self._ids)
        for token in ids:
            observed_E = torch.full((len(self._keys),), torch.nan)
            if self._position:
                log_weights_E = self._stream.log_weights()
                for reader in self._awake(log_weights_E):
                    observed_E[reader.places] = reader.after(self._ids, self._position - 1)[:, token].cpu()
                yield log_weights_E, observed_E
            self._advance(observed_E, token)

    def _advance(self, observed_E: Tensor, token: int) -> None:
        if self._position:
            self._stream.observe(observed_E, token)
        else:
            self._stream.begin(token)
        self._position += 1

    @torch.inference_mode()
    def distribution(self) -> tuple[Tensor, Tensor]:
        """(weights [E] as probabilities, the mixture's log-probabilities [V]) of the next token."""
        if not self._position:
            raise MixtureError("A mixture must have read at least one token before it predicts one.", "Give a prompt.")
        log_weights_E = self._stream.log_weights()
        awake = self._awake(log_weights_E)
        places = [place for reader in awake for place in reader.places]
        logprobs = [reader.after(self._ids, self._position - 1) for reader in awake]
        logprobs_AV = logprobs[0] if len(logprobs) == 1 else torch.cat(logprobs)
        return log_weights_E.exp(), mix(log_weights_E[places], logprobs_AV)

    def gates(self, weights_E: Tensor) -> dict[str, GateWeights]:
        """The gates inside the experts that weigh something (`weights_E`), where the next token is predicted."""
        return {
            self._keys[place]: gates
            for reader in self._readers
            for place, gates in reader.gates_after(self._position - 1).items()
            if weights_E[place] > 0
        }

    def _awake(self, log_weights_E: Tensor) -> list[_Reader]:
        """The bases that must be read: all for a gate that listens, else those with an expert that has weight."""
        has_weight = (log_weights_E > -torch.inf).tolist()
        return [one for one in self._readers if self._listens or any(has_weight[place] for place in one.places)]


@dataclass(frozen=True)
class _Piece:
    """What the experts of a base say after each token of some text, and what weighs inside those that have parts."""

    logprobs_ETV: Tensor
    inside: Mapping[str, PartWeights]

    def last(self) -> _Piece:
        """The same of the last token alone."""
        return _Piece(self.logprobs_ETV[:, -1:], {key: one.last() for key, one in self.inside.items()})


class _Reader:
    """The experts of one base on one growing text, with their caches; it reads only when it is asked."""

    def __init__(self, group: Group, keys: Sequence[str], chunk: int) -> None:
        self.places = [keys.index(key) for key in group.keys]  # of its experts among the gate's weights
        self._group = group
        self._rows = Rows.one_each(group.keys)
        self._chunk = chunk
        self._cache: Any = None  # of the model, from when it first reads
        self._num_read = 0
        self._before: _Piece | None = None  # the token before the newest piece
        self._piece: _Piece | None = None

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> None:
        """Reads what it has not read of a text, or a chunk of it."""
        piece = list(ids[self._num_read : self._num_read + self._chunk])
        model = self._group.model()
        input_ET = torch.tensor([piece] * len(self.places), device=model.device)
        self._cache = model.new_cache() if self._cache is None else self._cache
        self._before = self._piece and self._piece.last()
        logprobs_ETV = model(input_ET, self._rows, self._cache).float().log_softmax(-1)
        self._piece = _Piece(logprobs_ETV, model.part_weights())
        self._num_read += len(piece)

    def after(self, ids: Sequence[int], position: int) -> Tensor:
        """Log-probabilities [E, V] of what follows the token at a position, which may be the last one read or later."""
        while self._num_read <= position:
            self.read(ids)
        piece, place = self._find(position)
        return piece.logprobs_ETV[:, place]

    def gates_after(self, position: int) -> dict[int, GateWeights]:
        """By the places of experts that have parts: what weighed inside them at a position; none where it slept."""
        if self._piece is None or not self._piece.inside or self._num_read <= position:
            return {}
        piece, place = self._find(position)
        keys = self._group.keys
        return {self.places[keys.index(key)]: weights.at(place) for key, weights in piece.inside.items()}

    def _find(self, position: int) -> tuple[_Piece, int]:
        """The piece that holds a position that was read, and where in it, from its end."""
        assert self._piece is not None
        behind = position - self._num_read
        if -behind <= self._piece.logprobs_ETV.shape[1]:
            return self._piece, behind
        assert self._before is not None
        return self._before, -1


def generate(
    models: Models,
    keys: Sequence[str],
    gate: Gate,
    tokenizer: Tokenizer,
    prompt: Prompt,
    sampling: SamplingConfig,
    stop: Sequence[str] = (),
    stop_ids: Collection[int] | None = None,
) -> Iterator[Token | Done]:
    """Tokens as they are drawn, then one Done. Closing the iterator stops the work.

    `keys` are the experts that take part, in the order of the gate's weights. `stop_ids` are the tokens that end the
    answer (None: the tokenizer's). Raises MixtureError when no expert takes part, ContextLengthExceeded when the prompt
    leaves no room in the models' context.
    """
    require_readable(prompt, tokenizer, models)
    ids, _ = encode_prompt(prompt, tokenizer)
    mixing = Mixing(models, keys, gate)
    require_room(len(ids), models.max_positions - 1)
    mixing.feed(ids)
    text, ends = tokenizer.stream(ids), tokenizer.stop_ids if stop_ids is None else stop_ids
    room = models.max_positions - len(ids)
    yield from _continue(mixing, keys, text, ends, sampling, StopPhrases(stop), len(ids), room)


def _continue(
    mixing: Mixing,
    keys: Sequence[str],
    text: TextStream,
    stop_ids: Collection[int],
    sampling: SamplingConfig,
    phrases: StopPhrases,
    num_prompt: int,
    room: int,
) -> Iterator[Token | Done]:
    generator = make_generator(sampling.seed)
    limit = min(sampling.max_tokens, room)
    for number in range(limit):
        weights_E, logprobs_V = mixing.distribution()
        token = sample_token(logprobs_V, sampling, generator)
        if token in stop_ids:
            yield Done("stop", num_prompt, number, phrases.rest(text.rest()))
            return
        shown = phrases.push(text.push(token))
        weights = dict(zip(keys, weights_E.tolist(), strict=True))
        yield Token(token, shown, float(logprobs_V[token]), weights, mixing.gates(weights_E))
        if phrases.found:
            yield Done("phrase", num_prompt, number + 1)
            return
        if number + 1 < limit:
            mixing.feed([token])
    yield Done("length", num_prompt, limit, phrases.rest(text.rest()))


def read_prompt(models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, prompt: Prompt) -> Echo:
    """A prompt under the mixture, token by token; raises what `generate` raises."""
    require_readable(prompt, tokenizer, models)
    ids, num_before = encode_prompt(prompt, tokenizer)
    mixing, spoken = Mixing(models, keys, gate), tokenizer.stream()
    require_room(len(ids), models.max_positions)
    texts = [_shown(tokenizer, spoken, ids[0])]
    logprobs: list[float | None] = [None]
    best: list[tuple[str, float] | None] = [None]
    for one in _score(mixing, tokenizer, ids, spoken):
        texts.append(one.text)
        logprobs.append(one.logprob)
        best.append(one.best)
    texts[-1] += spoken.rest()
    if num_before < len(ids):
        logprobs[num_before] = best[num_before] = None
    return Echo(texts[num_before:], logprobs[num_before:], best[num_before:], len(ids))


def read_text(models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, text: str) -> dict[str, list[Any]]:
    """A text under the mixture: `tokens` as text, the `weights` [token][expert] before each, their `logprobs` (nats).

    `best` holds at each place the token that was the most probable there, as (text, log-probability), and `gates` those
    inside experts of MoDE. Where nothing comes before a prompt, the text is that of a document: its first token, too,
    is predicted.
    Raises MixtureError when the text is empty, ContextLengthExceeded when it is longer than the models' context.
    """
    require_readable(text, tokenizer, models)
    ids, before = tokenizer.encode(text), tokenizer.prefix or (tokenizer.bos_id,)
    most = models.max_positions - len(before)
    if not 0 < len(ids) <= most:
        cause = ContextLengthExceeded if ids else MixtureError
        raise cause(
            f"The text must have 1 to {most} tokens, but has {len(ids)} instead.",
            "Give a shorter text." if ids else "Give more text.",
        )
    mixing = Mixing(models, keys, gate)
    found: dict[str, list[Any]] = {"tokens": [], "weights": [], "logprobs": [], "best": [], "gates": []}
    spoken = tokenizer.stream()
    scored = _score(mixing, tokenizer, [*before, *ids], spoken)
    for one in islice(scored, len(before) - 1, None):  # from the first token of the text on
        weights_E = one.log_weights_E.exp()
        found["tokens"].append(one.text)
        found["weights"].append(weights_E.tolist())
        found["gates"].append(mixing.gates(weights_E))
        found["logprobs"].append(one.logprob)
        found["best"].append(one.best)
    found["tokens"][-1] += spoken.rest()
    return found


@dataclass(frozen=True)
class _Scored:
    """A predicted token: the weights before it, its log-probability, and the most probable token in its place."""

    text: str
    log_weights_E: Tensor
    logprob: float
    best: tuple[str, float]


def _score(mixing: Mixing, tokenizer: Tokenizer, ids: Sequence[int], spoken: TextStream) -> Iterator[_Scored]:
    """Every token but the first; while one is looked at, `mixing` stands before it."""
    for token, (log_weights_E, observed_E) in zip(ids[1:], mixing.read(ids), strict=True):
        _, logprobs_V = mixing.distribution()
        best = int(logprobs_V.argmax())
        best_text = spoken.peek(best) or tokenizer.written(best)
        shown, logprob = _shown(tokenizer, spoken, token), float(mix(log_weights_E, observed_E))
        if best == token:  # one number for one token: clients compare the two
            yield _Scored(shown, log_weights_E, logprob, (shown, logprob))
        else:
            yield _Scored(shown, log_weights_E, logprob, (best_text, float(logprobs_V[best])))


def _shown(tokenizer: Tokenizer, spoken: TextStream, token: int) -> str:
    """The text that a token adds; a special token is spelled out."""
    return spoken.rest() + tokenizer.written(token) if token in tokenizer.special_ids else spoken.push(token)
