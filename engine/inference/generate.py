"""Generates tokens from a mixture, with the expert weights behind each token.

The active experts of one base run as rows of one batch, each with its own key-value cache. The gate weighs the experts'
next-token distributions, `combine.mix` sums them, and the sampled token is fed back to all. For a gate that needs no
log-probabilities, a base whose experts all have weight 0 is not run; it catches up when one gets weight.

With speculation the expert of the largest weight drafts some tokens alone, and all experts read them in one pass. Every
token is still drawn from the mixture, from the noise that it has without drafts; a draft only tells what to read before
it is drawn. A draft is made with that same noise, so that two like distributions mostly give the same token.
Shapes: E experts, A running experts, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.errors import ContextLengthExceeded, MixtureError
from engine.events import Candidate, Done, Echo, GateWeights, Token
from engine.inference.cancellation import check_cancelled
from engine.inference.ensemble import Group, Models, as_ensemble
from engine.inference.prompt import Prompt, encode_prompt, require_fits, require_readable
from engine.inference.sampling import StopPhrases, make_generator, most_probable, sample_token
from engine.inference.shared_passes import Drafter, SharedModel, Slot
from engine.inference.speculation import DraftCount, Pace
from engine.mixing.base import Gate, Stream
from engine.mixing.combine import mix
from engine.models.expert_model import ExpertModel, PartWeights
from engine.models.rows import Rows
from engine.text.tokenizer import TextStream, Tokenizer

_CHUNK_POSITIONS = 512  # of a forward pass
_CHUNK_ELEMENTS = 1 << 24  # log-probabilities (E × positions × V) held at once while a text is read: 64 MiB
_FEW_ELEMENTS = 1 << 20  # so few are computed for a whole piece, by the products of the model's own forward pass


class Mixing:
    """A mixture on one growing text."""

    def __init__(self, models: Models, keys: Sequence[str], gate: Gate) -> None:
        """`keys` are the active experts in the order of the gate's weights."""
        ensemble = as_ensemble(models, keys)
        self._readers = [_Reader(group, keys) for group in ensemble.groups]
        self._keys = tuple(keys)
        self._needs_logprobs = gate.needs_logprobs and len(keys) > 1  # the weight of a single expert is 1
        self._unknown_E = torch.full((len(keys),), 0.0 if gate.needs_logprobs else torch.nan)
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

        Raises Cancelled between two passes once nobody waits for the answer.
        """
        if ids and list(ids) == self._ahead[:1]:
            del self._ahead[0]
        else:
            self._forget_ahead()
        for start in range(0, len(ids), _CHUNK_POSITIONS):
            check_cancelled()
            self._feed_chunk(ids[start : start + _CHUNK_POSITIONS])

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

    def drafter(self, weights_E: Tensor) -> Drafter | None:
        """The expert with the largest weight [E], to read on alone; None where nothing may be read ahead of the text.

        That is so for one expert, for models whose streams cannot share passes (their caches cannot be cut back), and
        while other streams share them: then the other streams fill the passes.
        """
        self._forget_ahead()
        if len(self._keys) < 2:
            return None
        leader = int(weights_E.argmax())
        readers = self._running(weights_E.log())
        if not all(reader.can_read_ahead(len(self._ids)) for reader in readers):
            return None
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
        for start in range(0, len(ids), _CHUNK_POSITIONS):
            check_cancelled()
            yield from self._read_chunk(ids[start : start + _CHUNK_POSITIONS])

    def _read_chunk(self, ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        self._ids.extend(ids)
        if self._needs_logprobs:
            for reader in self._readers:
                reader.read(self._ids)
        for token in ids:
            check_cancelled()
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

    def after(self, place: int) -> Tensor | None:
        """The log-probabilities [E, V] after a token, if they are computed."""
        inside = self.first <= place < self.first + self.logprobs_EWV.shape[1]
        return self.logprobs_EWV[:, place - self.first] if inside else None

    def last(self) -> _Piece:
        """The values of the last token only, whose log-probabilities are computed."""
        parts = {key: weights.last() for key, weights in self.inside.items()}
        return _Piece(self.hidden_ETD[:, -1:], parts, 0, self.logprobs_EWV[:, -1:])


class _Reader:
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

    def can_read_ahead(self, length: int) -> bool:
        """Whether it has read a text of this length, alone, into a cache that can be cut back."""
        model = self._group.model()
        if not isinstance(model, SharedModel) or not isinstance(self._cache, Slot):
            return False
        return self._num_read == length and model.is_only_stream(self._cache)

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
        first_E = torch.zeros(len(self.places)) if not position else self.after(ids, position - 1)[:, tokens[0]]
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
        """The part weights at a position, by the index of each MoDE expert; empty if it was not read."""
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
        piece = list(ids[self._num_read : self._num_read + _CHUNK_POSITIONS])
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


def generate(
    models: Models,
    keys: Sequence[str],
    gate: Gate,
    tokenizer: Tokenizer,
    prompt: Prompt,
    sampling: SamplingConfig,
    stop: Sequence[str] = (),
    stop_ids: Collection[int] | None = None,
    reserve: Callable[[int], AbstractContextManager[object]] = nullcontext,
    drafts: DraftCount | None = None,
) -> Generator[Token | Done, None, None]:
    """Yields tokens as they are sampled, then one Done. Closing the iterator stops the generation.

    `keys` are the active experts in the order of the gate's weights. `stop_ids` end the answer (None: the
    tokenizer's). `reserve` is held while the answer is made, for the number of positions that it gets at most.
    `drafts` counts those of speculation.
    Raises MixtureError without active experts, ContextLengthExceeded when the prompt fills the models'
    context.
    """
    require_readable(prompt, tokenizer, models)
    ids, _ = encode_prompt(prompt, tokenizer)
    mixing = Mixing(models, keys, gate)
    require_fits(len(ids), models.max_positions - 1)
    ends = tokenizer.stop_ids if stop_ids is None else stop_ids
    max_new_tokens = models.max_positions - len(ids)
    with reserve(len(ids) + min(sampling.max_tokens, max_new_tokens)):
        mixing.feed(ids)
        pace = Pace(drafts) if sampling.speculate else None
        yield from _continue(mixing, keys, tokenizer, ends, sampling, StopPhrases(stop), len(ids), max_new_tokens, pace)


def _continue(
    mixing: Mixing,
    keys: Sequence[str],
    tokenizer: Tokenizer,
    stop_ids: Collection[int],
    sampling: SamplingConfig,
    phrases: StopPhrases,
    num_prompt: int,
    max_new_tokens: int,
    pace: Pace | None = None,
) -> Iterator[Token | Done]:
    generator, text = make_generator(sampling.seed), tokenizer.stream(mixing.ids)
    stop_ids = () if sampling.ignore_eos else stop_ids
    limit = min(sampling.max_tokens, max_new_tokens)

    def draw(logprobs_V: Tensor, noise: torch.Generator, text: Sequence[int]) -> int:
        return sample_token(logprobs_V, sampling, noise, text, num_prompt)

    for number in range(limit):
        weights_E, logprobs_V = mixing.distribution()
        token = draw(logprobs_V, generator, mixing.ids)
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
        if number + 1 == limit:
            break
        if pace is None or pace.judge(token):
            mixing.feed([token])
        elif guesses := _draft(mixing, pace, weights_E, token, limit - number - 2, draw, generator):
            mixing.feed_with(token, guesses)
        else:
            mixing.feed([token])
    yield Done("length", num_prompt, limit, phrases.rest(text.rest()))


def _draft(
    mixing: Mixing,
    pace: Pace,
    weights_E: Tensor,
    token: int,
    most: int,
    draw: Callable[[Tensor, torch.Generator, Sequence[int]], int],
    generator: torch.Generator,
) -> list[int]:
    """The tokens that the leading expert says after a token, from the noise that the mixture's own will be drawn with.

    Options of sampling see the text with the drafts before. Empty where nothing is to be drafted.
    """
    number = pace.number(len(weights_E), most)
    drafter = mixing.drafter(weights_E) if number else None
    if drafter is None:
        return []
    noise, text = generator.clone_state(), [*mixing.ids, token]
    for _ in range(number):
        text.append(draw(drafter.after(text[-1]), noise, text))
    drafts = text[-number:]
    pace.drafted(drafts)
    return drafts


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
