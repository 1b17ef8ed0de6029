"""Generates tokens from a mixture, with the expert weights behind each token.

Every token is drawn from the mixture's distribution and fed back to its experts.

With speculation the expert of the largest weight drafts some tokens, and all experts read them in one pass. Every
token is still drawn from the mixture, from the noise that it has without drafts; a draft only tells what to read before
it is drawn. A draft is made with that same noise, so that two like distributions mostly give the same token.
Shapes: E experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.config import SamplingConfig
from engine.errors import ContextLengthExceededError, MixtureError, TokenizerError
from engine.events import Candidate, Done, Echo, Token
from engine.inference.ensemble import Models
from engine.inference.mixing import Mixing
from engine.inference.sampling import StopPhrases, as_shown, candidates_at, make_generator, only_tokens, sample_token
from engine.inference.speculation import DraftCount, DraftPace
from engine.mixing.base import Gate
from engine.mixing.combine import mix
from engine.text.tokenizer import TextStream, Tokenizer

Prompt = str | Sequence[int]
# Clients tell by words like these (LangChain, LiteLLM) that they can send less.
_TOO_LONG, _CONTEXT = "The prompt is too long", "this model's maximum context length is"
_FEWEST_CHARACTERS = 64  # allowed for each token of the context: a tokenizer's normalizer may shorten a text


class PromptLimits(Protocol):
    """The limits of a prompt: the models' context and vocabulary."""

    @property
    def max_positions(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...


def require_readable(prompt: Prompt, tokenizer: Tokenizer, models: PromptLimits, num_new: int = 0) -> None:
    """Refuses an invalid prompt without tokenizing it; `num_new` tokens are to fit behind it.

    Raises ContextLengthExceededError for a prompt that cannot fit, TokenizerError for ids outside the vocabulary.
    """
    if isinstance(prompt, str):
        most = models.max_positions * max(_FEWEST_CHARACTERS, tokenizer.longest_token)
        if len(prompt) > most:
            raise ContextLengthExceededError(
                f"{_TOO_LONG}: {len(prompt):,} characters are too many, as {_CONTEXT} {models.max_positions} tokens.",
                f"Shorten it by {len(prompt) - most:,} characters at least.",
            )
        return
    if foreign := [token for token in prompt if not 0 <= token < models.vocab_size]:
        problem = f"Token ids must be from 0 to {models.vocab_size - 1}, got {foreign[0]}."
        raise TokenizerError(problem, "Tokenize the text with this model's own tokenizer.")
    require_fits(len(prompt), models, num_new)


def require_fits(num_tokens: int, models: PromptLimits, num_new: int = 0) -> None:
    """Raises ContextLengthExceededError when a prompt does not fit with so many tokens behind it."""
    if (surplus := num_tokens + num_new - models.max_positions) > 0:
        of_these = f", {num_new} of them for the answer" if num_new else ""
        problem = f"{_TOO_LONG}: it has {num_tokens} tokens, and {_CONTEXT} {models.max_positions} tokens{of_these}."
        raise ContextLengthExceededError(problem, f"Shorten it by {surplus}.")


def encode_prompt(prompt: Prompt, tokenizer: Tokenizer) -> tuple[list[int], int]:
    """The ids to read, and the number of prefix tokens that were added."""
    if not isinstance(prompt, str):
        return list(prompt), 0
    is_special = tokenizer.bos_id in tokenizer.special_ids  # some vocabularies name an ordinary word
    text = prompt.removeprefix(tokenizer.bos_token) if is_special else prompt
    ids = tokenizer.encode(text)
    if text != prompt:
        return [tokenizer.bos_id, *ids], 0
    prompt_ids = tokenizer.as_prompt(ids)
    return prompt_ids, len(prompt_ids) - len(ids)


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
    evidence_from: int = 0,
) -> Generator[Token | Done, None, None]:
    """Yields tokens as they are sampled, then one Done. Closing the iterator stops the generation.

    `keys` are the active experts in the order of the gate's weights. `stop_ids` end the answer (None: the
    tokenizer's). `reserve` is held while the answer is made, for the number of positions that it gets at most.
    `drafts` counts those of speculation. Tokens of the prompt before the position `evidence_from` do not count as
    evidence. Raises MixtureError without active experts, ContextLengthExceededError when the prompt fills the models'
    context.
    """
    require_readable(prompt, tokenizer, models, 1)
    ids, _ = encode_prompt(prompt, tokenizer)
    mixing = Mixing(models, keys, gate, evidence_from)
    require_fits(len(ids), models, 1)
    ends = () if sampling.ignore_eos else tokenizer.stop_ids if stop_ids is None else stop_ids
    limit = min(sampling.max_tokens, models.max_positions - len(ids))
    with reserve(len(ids) + limit):
        mixing.feed(ids)
        pace = DraftPace(drafts) if sampling.speculate else None
        yield from _continue(mixing, keys, tokenizer, ends, sampling, StopPhrases(stop), limit, pace)


def _continue(
    mixing: Mixing,
    keys: Sequence[str],
    tokenizer: Tokenizer,
    stop_ids: Collection[int],
    sampling: SamplingConfig,
    phrases: StopPhrases,
    limit: int,
    pace: DraftPace | None,
) -> Iterator[Token | Done]:
    generator, text, num_prompt = make_generator(sampling.seed), tokenizer.stream(mixing.ids), len(mixing.ids)

    def draw(logprobs_V: Tensor, noise: torch.Generator, text: Sequence[int]) -> int:
        possible_V = only_tokens(logprobs_V, tokenizer.unused_rows(len(logprobs_V)))
        return sample_token(possible_V, sampling, noise, text, num_prompt)

    for number in range(limit):
        weights_E, logprobs_V = mixing.distribution()
        token = draw(logprobs_V, generator, mixing.ids)
        if token in stop_ids:
            yield Done("stop", num_prompt, number, phrases.rest(text.rest()), pace.drafting() if pace else None)
            return
        candidates = candidates_at(logprobs_V, sampling.num_candidates, tokenizer, text)
        shown, logprob = phrases.push(text.push(token)), float(logprobs_V[token])
        weights = dict(zip(keys, weights_E.tolist(), strict=True))
        candidates = as_shown(candidates, Candidate(token, shown, logprob))
        yield Token(token, shown, logprob, weights, mixing.gates(weights_E), candidates)
        if phrases.matched:
            yield Done("phrase", num_prompt, number + 1, drafting=pace.drafting() if pace else None)
            return
        if number + 1 == limit:
            break
        if pace is None or pace.judge(token):
            mixing.feed([token])
        elif guesses := _draft(mixing, pace, weights_E, token, limit - number - 2, draw, generator):
            mixing.feed_with(token, guesses)
        else:
            mixing.feed([token])
    yield Done("length", num_prompt, limit, phrases.rest(text.rest()), pace.drafting() if pace else None)


def _draft(
    mixing: Mixing,
    pace: DraftPace,
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
    drafter = mixing.drafter(weights_E) if number else ""
    if isinstance(drafter, str):
        pace.refused(drafter)
        return []
    noise, text = generator.clone_state(), [*mixing.ids, token]
    for _ in range(number):
        text.append(draw(drafter.after(text[-1]), noise, text))
    drafts = text[-number:]
    pace.drafted(drafts)
    return drafts


def read_prompt(
    models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, prompt: Prompt, num_candidates: int = 0
) -> Echo:
    """Scores a prompt under the mixture, token by token; raises the errors of `generate`."""
    require_readable(prompt, tokenizer, models)
    ids, num_before = encode_prompt(prompt, tokenizer)
    mixing, stream = Mixing(models, keys, gate), tokenizer.stream()
    require_fits(len(ids), models)
    first = _shown(tokenizer, stream, ids[0])
    scored = list(_score(mixing, tokenizer, ids, stream, num_candidates))
    texts = [first, *(one.text for one in scored)]
    logprobs: list[float | None] = [None, *(one.logprob for one in scored)]
    best: list[tuple[str, float] | None] = [None, *(one.best for one in scored)]
    candidates: list[Sequence[Candidate]] = [(), *(one.candidates for one in scored)]
    texts[-1] += stream.rest()
    if num_before < len(ids):
        logprobs[num_before] = best[num_before] = None
        candidates[num_before] = ()
    named = candidates[num_before:] if num_candidates else ()
    return Echo(texts[num_before:], logprobs[num_before:], best[num_before:], len(ids), named)


def read_text(models: Models, keys: Sequence[str], gate: Gate, tokenizer: Tokenizer, text: str) -> dict[str, list[Any]]:
    """Scores a text under the mixture: its `tokens`, the `weights` [token][expert] before each, and `logprobs` (nats).

    `best` is the most probable token at each position as (text, log-probability), `gates` the MoDE gates. If the
    tokenizer has no prefix, the text is scored as a document: its first token is also predicted.
    Raises MixtureError for an empty text, ContextLengthExceededError for one longer than the models' context.
    """
    require_readable(text, tokenizer, models)
    ids, before = tokenizer.encode(text), tokenizer.prefix or (tokenizer.bos_id,)
    most = models.max_positions - len(before)
    if not 0 < len(ids) <= most:
        cause = ContextLengthExceededError if ids else MixtureError
        problem = f"The text has {len(ids)} tokens; 1 to {most} are supported."
        raise cause(problem, "Give a shorter text." if ids else "Give more text.")
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
class _ScoredToken:
    """A predicted token: the weights before it, its log-probability, and the most probable token in its place."""

    text: str
    log_weights_E: Tensor
    logprob: float
    best: tuple[str, float]
    candidates: Sequence[Candidate]


def _score(
    mixing: Mixing, tokenizer: Tokenizer, ids: Sequence[int], stream: TextStream, num_candidates: int = 0
) -> Iterator[_ScoredToken]:
    """Yields every token but the first, while `mixing` is still before it."""
    for token, (log_weights_E, observed_E) in zip(ids[1:], mixing.read(ids), strict=True):
        _, logprobs_V = mixing.distribution()
        best = int(only_tokens(logprobs_V, tokenizer.unused_rows(len(logprobs_V))).argmax())
        best_text = stream.peek(best) or tokenizer.written(best)
        candidates = candidates_at(logprobs_V, num_candidates, tokenizer, stream)
        shown, logprob = _shown(tokenizer, stream, token), float(mix(log_weights_E, observed_E))
        candidates = as_shown(candidates, Candidate(token, shown, logprob))
        # exactly one number for one token: clients compare the two
        named = (shown, logprob) if best == token else (best_text, float(logprobs_V[best]))
        yield _ScoredToken(shown, log_weights_E, logprob, named, candidates)


def _shown(tokenizer: Tokenizer, stream: TextStream, token: int) -> str:
    """The text that a token adds; the vocabulary entry for a special token."""
    return stream.rest() + tokenizer.written(token) if token in tokenizer.special_ids else stream.push(token)
