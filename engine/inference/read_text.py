"""Scores a given text under a mixture, token by token.

Shapes: E experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch import Tensor

from engine.errors import ContextLengthExceededError, MixtureError
from engine.events import Candidate, Echo
from engine.inference.ensemble import Models
from engine.inference.mixing import Mixing
from engine.inference.prompt import Prompt, encode_prompt, require_fits, require_readable
from engine.inference.sampling import as_shown, candidates_at, only_tokens
from engine.mixing.base import Gate, mix
from engine.text.tokenizer import TextStream, Tokenizer


def read_prompt(
    models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, prompt: Prompt, num_candidates: int = 0
) -> Echo:
    """Scores a prompt under the mixture, token by token; raises the errors of `generate`."""
    require_readable(prompt, tokenizer, models)
    ids, num_before = encode_prompt(prompt, tokenizer)
    mixing, stream = Mixing(models, keys, gate), tokenizer.stream()
    require_fits(len(ids), models)
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
    Raises MixtureError for an empty text, ContextLengthExceededError for one longer than the models' context.
    """
    require_readable(text, tokenizer, models)
    ids, before = tokenizer.encode(text), tokenizer.prefix or (tokenizer.bos_id,)
    most = models.max_positions - len(before)
    if not 0 < len(ids) <= most:
        cause = ContextLengthExceededError if ids else MixtureError
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
        best = int(only_tokens(logprobs_V, tokenizer.unused_rows(len(logprobs_V))).argmax())
        best_text = stream.peek(best) or tokenizer.written(best)
        candidates = candidates_at(logprobs_V, num_candidates, tokenizer, stream)
        shown, logprob = _shown(tokenizer, stream, token), float(mix(log_weights_E, observed_E))
        candidates = as_shown(candidates, Candidate(token, shown, logprob))
        if best == token:  # exactly one number for one token: clients compare the two
            yield _Scored(shown, log_weights_E, logprob, (shown, logprob), candidates)
        else:
            yield _Scored(shown, log_weights_E, logprob, (best_text, float(logprobs_V[best])), candidates)


def _shown(tokenizer: Tokenizer, stream: TextStream, token: int) -> str:
    """The text that a token adds; the vocabulary entry for a special token."""
    return stream.rest() + tokenizer.written(token) if token in tokenizer.special_ids else stream.push(token)
