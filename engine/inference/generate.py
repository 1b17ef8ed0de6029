"""Generates tokens from a mixture, with the expert weights behind each token.

The active experts of one base run as rows of one batch, each with its own key-value cache. The gate weighs the experts'
next-token distributions, `combine.mix` sums them, and the sampled token is fed back to all. For a gate that needs no
log-probabilities, a base whose experts all have weight 0 is not run; it catches up when one gets weight.
Shapes: E experts, A running experts, T positions, V vocabulary.
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
from engine.events import Candidate, Done, Echo, GateWeights, Token
from engine.inference.ensemble import Group, Models, as_ensemble
from engine.inference.prompt import Prompt, encode_prompt, require_fits, require_readable
from engine.inference.sampling import StopPhrases, make_generator, most_probable, sample_token
from engine.mixing.base import Gate, Stream
from engine.mixing.combine import mix
from engine.models.expert_model import PartWeights
from engine.models.rows import Rows
from engine.text.tokenizer import TextStream, Tokenizer

_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × positions × V) held at once while a prompt is read: 64 MiB


class Mixing:
    """A mixture on one growing text."""

    def __init__(self, models: Models, keys: Sequence[str], gate: Gate) -> None:
        """`keys` are the active experts in the order of the gate's weights."""
        ensemble = as_ensemble(models, keys)
        self._chunk = max(1, _CHUNK_ELEMENTS // (len(keys) * ensemble.vocab_size))
        self._readers = [_Reader(group, keys, self._chunk) for group in ensemble.groups]
        self._keys, self._needs_logprobs = tuple(keys), gate.needs_logprobs
        self._stream: Stream = gate.start()
        self._ids: list[int] = []  # the text so far
        self._position = 0  # the first position that the gate has not seen

    @property
    def ids(self) -> Sequence[int]:
        """The text so far."""
        return self._ids

    def feed(self, ids: Sequence[int]) -> None:
        """Appends tokens, computing only what the weights after them need."""
        if self._needs_logprobs:
            for _ in self.read(ids):
                pass
            return
        unknown_E = torch.full((len(self._keys),), torch.nan)
        self._ids.extend(ids)
        for token in ids:
            self._advance(unknown_E, token)

    def read(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Appends tokens. Yields for each predicted token the log-weights [E] before it and its log-probabilities [E].

        The log-probability of an expert that is not run is NaN.
        """
        for start in range(0, len(ids), self._chunk):
            yield from self._read_chunk(ids[start : start + self._chunk])

    def _read_chunk(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        self._ids.extend(ids)
        if self._needs_logprobs:
            for reader in self._readers:
                reader.read(self._ids)
        for token in ids:
            observed_E = torch.full((len(self._keys),), torch.nan)
            if self._position:
                log_weights_E = self._stream.log_weights()
                for reader in self._running(log_weights_E):
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

    def _running(self, log_weights_E: Tensor) -> list[_Reader]:
        """The bases to run: all for a gate that needs log-probabilities, else those with a weight above 0."""
        has_weight = (log_weights_E > -torch.inf).tolist()
        return [
            reader
            for reader in self._readers
            if self._needs_logprobs or any(has_weight[place] for place in reader.places)
        ]


@dataclass(frozen=True)
class _Piece:
    """The log-probabilities of a base's experts after each token of a text chunk, and their MoDE part weights."""

    logprobs_ETV: Tensor
    inside: Mapping[str, PartWeights]

    def last(self) -> _Piece:
        """The values of the last token only."""
        return _Piece(self.logprobs_ETV[:, -1:], {key: weights.last() for key, weights in self.inside.items()})


class _Reader:
    """The experts of one base on one growing text, with their caches; reads lazily."""

    def __init__(self, group: Group, keys: Sequence[str], chunk: int) -> None:
        self.places = [keys.index(key) for key in group.keys]  # indices of its experts among the gate's weights
        self._group = group
        self._rows = Rows.one_each(group.keys)
        self._chunk = chunk
        self._cache: Any = None  # set at the first read
        self._num_read = 0
        self._before: _Piece | None = None  # the token before the newest piece
        self._piece: _Piece | None = None

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> None:
        """Reads the next chunk of the unread text."""
        piece = list(ids[self._num_read : self._num_read + self._chunk])
        model = self._group.model()
        input_ET = torch.tensor([piece] * len(self.places), device=model.device)
        self._cache = model.new_cache() if self._cache is None else self._cache
        self._before = self._piece and self._piece.last()
        logprobs_ETV = model(input_ET, self._rows, self._cache).float().log_softmax(-1)
        self._piece = _Piece(logprobs_ETV, model.part_weights())
        self._num_read += len(piece)

    def after(self, ids: Sequence[int], position: int) -> Tensor:
        """Log-probabilities [E, V] after the token at a position; reads on if needed."""
        while self._num_read <= position:
            self.read(ids)
        piece, place = self._find(position)
        return piece.logprobs_ETV[:, place]

    def gates_after(self, position: int) -> dict[int, GateWeights]:
        """The part weights at a position, by the index of each MoDE expert; empty if it was not read."""
        if self._piece is None or not self._piece.inside or self._num_read <= position:
            return {}
        piece, place = self._find(position)
        keys = self._group.keys
        return {self.places[keys.index(key)]: weights.at(place) for key, weights in piece.inside.items()}

    def _find(self, position: int) -> tuple[_Piece, int]:
        """The piece with a position that was read, and the index in it, from its end."""
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
    """Yields tokens as they are sampled, then one Done. Closing the iterator stops the generation.

    `keys` are the active experts in the order of the gate's weights. `stop_ids` end the answer (None: the
    tokenizer's). Raises MixtureError without active experts, ContextLengthExceeded when the prompt fills the models'
    context.
    """
    require_readable(prompt, tokenizer, models)
    ids, _ = encode_prompt(prompt, tokenizer)
    mixing = Mixing(models, keys, gate)
    require_fits(len(ids), models.max_positions - 1)
    mixing.feed(ids)
    ends = tokenizer.stop_ids if stop_ids is None else stop_ids
    max_new_tokens = models.max_positions - len(ids)
    yield from _continue(mixing, keys, tokenizer, ends, sampling, StopPhrases(stop), len(ids), max_new_tokens)


def _continue(
    mixing: Mixing,
    keys: Sequence[str],
    tokenizer: Tokenizer,
    stop_ids: Collection[int],
    sampling: SamplingConfig,
    phrases: StopPhrases,
    num_prompt: int,
    max_new_tokens: int,
) -> Iterator[Token | Done]:
    generator, text = make_generator(sampling.seed), tokenizer.stream(mixing.ids)
    stop_ids = () if sampling.ignore_eos else stop_ids
    limit = min(sampling.max_tokens, max_new_tokens)
    for number in range(limit):
        weights_E, logprobs_V = mixing.distribution()
        token = sample_token(logprobs_V, sampling, generator, mixing.ids, num_prompt)
        if token in stop_ids:
            yield Done("stop", num_prompt, number, phrases.rest(text.rest()))
            return
        candidates = candidates_at(logprobs_V, sampling.num_candidates, tokenizer, text)
        shown, logprob = phrases.push(text.push(token)), float(logprobs_V[token])
        weights = dict(zip(keys, weights_E.tolist(), strict=True))
        candidates = _as_shown(candidates, Candidate(token, shown, logprob))
        yield Token(token, shown, logprob, weights, mixing.gates(weights_E), candidates)
        if phrases.matched:
            yield Done("phrase", num_prompt, number + 1)
            return
        if number + 1 < limit:
            mixing.feed([token])
    yield Done("length", num_prompt, limit, phrases.rest(text.rest()))


def candidates_at(logprobs_V: Tensor, number: int, tokenizer: Tokenizer, text: TextStream) -> list[Candidate]:
    """The most probable next tokens, with the text that each would add."""
    return [
        Candidate(token, text.peek(token) or tokenizer.written(token), logprob)
        for token, logprob in most_probable(logprobs_V, number)
    ]


def _as_shown(candidates: Sequence[Candidate], token: Candidate) -> list[Candidate]:
    """The same, where the token that was taken has the text and the number that it is shown with: clients compare."""
    return [token if one.id == token.id else one for one in candidates]


def read_prompt(
    models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, prompt: Prompt, num_candidates: int = 0
) -> Echo:
    """Scores a prompt under the mixture, token by token; raises the errors of `generate`."""
    require_readable(prompt, tokenizer, models)
    ids, num_before = encode_prompt(prompt, tokenizer)
    mixing, stream = Mixing(models, keys, gate), tokenizer.stream()
    require_fits(len(ids), models.max_positions)
    texts = [_shown(tokenizer, stream, ids[0])]
    logprobs: list[float | None] = [None]
    best: list[tuple[str, float] | None] = [None]
    candidates: list[Sequence[Candidate]] = [()]
    for scored in _score(mixing, tokenizer, ids, stream, num_candidates):
        texts.append(scored.text)
        logprobs.append(scored.logprob)
        best.append(scored.best)
        candidates.append(scored.candidates)
    texts[-1] += stream.rest()
    if num_before < len(ids):
        logprobs[num_before] = best[num_before] = None
        candidates[num_before] = ()
    named = candidates[num_before:] if num_candidates else ()
    return Echo(texts[num_before:], logprobs[num_before:], best[num_before:], len(ids), named)


def read_text(models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, text: str) -> dict[str, list[Any]]:
    """Scores a text under the mixture: its `tokens`, the `weights` [token][expert] before each, and `logprobs` (nats).

    `best` is the most probable token at each position as (text, log-probability), `gates` the MoDE gates. If the
    tokenizer has no prefix, the text is scored as a document: its first token is predicted, too.
    Raises MixtureError for an empty text, ContextLengthExceeded for one longer than the models' context.
    """
    require_readable(text, tokenizer, models)
    ids, before = tokenizer.encode(text), tokenizer.prefix or (tokenizer.bos_id,)
    most = models.max_positions - len(before)
    if not 0 < len(ids) <= most:
        cause = ContextLengthExceeded if ids else MixtureError
        raise cause(
            f"The text has {len(ids)} tokens; 1 to {most} are supported.",
            "Give a shorter text." if ids else "Give more text.",
        )
    mixing = Mixing(models, keys, gate)
    columns: dict[str, list[Any]] = {"tokens": [], "weights": [], "logprobs": [], "best": [], "gates": []}
    stream = tokenizer.stream()
    scored = _score(mixing, tokenizer, [*before, *ids], stream)
    for token in islice(scored, len(before) - 1, None):  # from the first token of the text on
        weights_E = token.log_weights_E.exp()
        columns["tokens"].append(token.text)
        columns["weights"].append(weights_E.tolist())
        columns["gates"].append(mixing.gates(weights_E))
        columns["logprobs"].append(token.logprob)
        columns["best"].append(token.best)
    columns["tokens"][-1] += stream.rest()
    return columns


@dataclass(frozen=True)
class _Scored:
    """A predicted token: the weights before it, its log-probability, and the most probable token in its place."""

    text: str
    log_weights_E: Tensor
    logprob: float
    best: tuple[str, float]
    candidates: Sequence[Candidate]


def _score(
    mixing: Mixing, tokenizer: Tokenizer, ids: Sequence[int], stream: TextStream, num_candidates: int = 0
) -> Iterator[_Scored]:
    """Yields every token but the first, while `mixing` is still before it."""
    for token, (log_weights_E, observed_E) in zip(ids[1:], mixing.read(ids), strict=True):
        _, logprobs_V = mixing.distribution()
        best = int(logprobs_V.argmax())
        best_text = stream.peek(best) or tokenizer.written(best)
        candidates = candidates_at(logprobs_V, num_candidates, tokenizer, stream)
        shown, logprob = _shown(tokenizer, stream, token), float(mix(log_weights_E, observed_E))
        candidates = _as_shown(candidates, Candidate(token, shown, logprob))
        if best == token:  # exactly one number for one token: clients compare the two
            yield _Scored(shown, log_weights_E, logprob, (shown, logprob), candidates)
        else:
            yield _Scored(shown, log_weights_E, logprob, (best_text, float(logprobs_V[best])), candidates)


def _shown(tokenizer: Tokenizer, stream: TextStream, token: int) -> str:
    """The text that a token adds; the vocabulary entry for a special token."""
    return stream.rest() + tokenizer.written(token) if token in tokenizer.special_ids else stream.push(token)
